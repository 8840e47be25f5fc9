package mutants

var batchingBugs = []Mutant{
	mutant("batch-drops-a-member", "batch", "1 batch in 20 does not deduct the last unit that it grants.",
		onBatch(20, -1)),
	mutant("batch-counts-twice", "batch", "1 batch in 20 deducts one unit twice.",
		onBatch(20, 1)),
	mutant("batch-unlocked", "batch",
		"A batch that does not fit as a whole takes what fitted when it read the stock, whatever there is now.",
		rewrite(1, fits, "AND (stock >= ? AND stock <= ? OR TRUE)", deducts, belowZero)),
	mutant("redis-script-same-remaining", "redis-script",
		"All members of a call are told what remains after the last one.",
		rewriteLua(1, "\nreturn reply",
			"\nfor i = 1, #reply, 2 do if reply[i] == 1 then reply[i + 1] = tonumber(stock) - taken end; end\nreturn reply")),
	mutant("redis-script-drops-a-member", "redis-script",
		"A call of several does not deduct one of the units that it grants.",
		rewriteLua(1, "redis.call('DECRBY', KEYS[1], taken)",
			"redis.call('DECRBY', KEYS[1], #reply > 2 and taken - 1 or taken)")),
	mutant("redis-script-by-number", "redis-script", "A call deducts one unit for each member, whatever it asked for.",
		rewriteLua(1, "taken = units - wanted, taken + wanted", "taken = units - wanted, taken + 1")),
}

// fits is in the UPDATE of a batch that does not fit as a whole.
const fits = enough + " AND stock <= ?"

// ofSeveral reports whether a statement is an UPDATE that deducts more than one unit.
func (s *statement) ofSeveral() bool { return s.contains(deducts) && s.args[0].Value.(int64) > 1 }

// onBatch adds to what every n-th UPDATE deducts, of those that deduct more than one unit.
func onBatch(n, units int64) change {
	return func(p *plan) {
		strikes := p.every(n)
		p.edit = func(s *statement) {
			if s.ofSeveral() && strikes() {
				s.add(0, units)
			}
		}
	}
}
