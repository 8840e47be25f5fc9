package mutants

var batchingBugs = []Mutant{
	{
		Name: "batch-drops-a-member", Strategy: "batch",
		Planted: "1 batch in 20 does not deduct the last unit that it grants.",
		change:  onBatch(20, -1),
	},
	{
		Name: "batch-counts-twice", Strategy: "batch",
		Planted: "1 batch in 20 deducts one unit twice.",
		change:  onBatch(20, 1),
	},
	{
		Name: "batch-unlocked", Strategy: "batch",
		Planted: "A batch that does not fit as a whole takes what fitted when it read the stock, whatever there is now.",
		change:  rewrite(1, fits, "AND (stock >= ? AND stock <= ? OR TRUE)", deducts, belowZero),
	},
	{
		Name: "redis-script-same-remaining", Strategy: "redis-script",
		Planted: "All members of a call are told what remains after the last one.",
		change: rewriteLua(1, "\nreturn reply",
			"\nfor i = 1, #reply, 2 do if reply[i] == 1 then reply[i + 1] = tonumber(stock) - taken end; end\nreturn reply"),
	},
	{
		Name: "redis-script-drops-a-member", Strategy: "redis-script",
		Planted: "A call of several does not deduct one of the units that it grants.",
		change: rewriteLua(1, "redis.call('DECRBY', KEYS[1], taken)",
			"redis.call('DECRBY', KEYS[1], #reply > 2 and taken - 1 or taken)"),
	},
	{
		Name: "redis-script-by-number", Strategy: "redis-script",
		Planted: "A call deducts one unit for each member, whatever it asked for.",
		change:  rewriteLua(1, "taken = units - wanted, taken + wanted", "taken = units - wanted, taken + 1"),
	},
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
