package mutation

// explorerBugs are mistakes that an explorer can make without anybody noticing: it finds less than there is. Tests of
// the gallery hold a script to what it expects.
var explorerBugs = []struct {
	name, planted string
	rewrite
}{
	{
		"forgets-a-dependency", "A step that reads is taken to commute with one that writes.",
		rewrite{
			"search.go", " && disjoint(o.Writes, other.Reads) && disjoint(o.Reads, other.Writes)", "",
			"TestTheReductionFindsEveryOutcome",
		},
	},
	{
		"forgets-what-a-commit-shows", "The end of a transaction is taken to touch nothing.",
		rewrite{
			"wire/sql.go", "effect{reads: s.touched, writes: s.changed, local: len", "effect{local: len",
			"TestScripts/gallery/unlock-before-commit",
		},
	},
	{
		"trusts-functions", "A stored function is taken to touch nothing.",
		rewrite{
			"wire/sql.go", "if callsUnknown(tokens, tables) || ", "if ",
			"TestScripts/hidden",
		},
	},
	{
		"wakes-nobody", "A step that was postponed is not offered again when another one has changed what it reads.",
		rewrite{
			"search.go", "return !o.commutes(p.Options[at])", "return false",
			"TestTheReductionFindsEveryOutcome",
		},
	},
	{
		"waits-for-no-waiter", "A step that has waited in MySQL is not awaited when it can go on.",
		rewrite{
			"schedule.go", "\t\tcase len(a.flying) > 0:\n",
			"\t\tcase slices.ContainsFunc(a.flying, func(f *exchange) bool {\n" +
				"\t\t\treturn f.step != nil && f.step.Kind == trace.Waits\n\t\t}):\n" +
				"\t\tcase len(a.flying) > 0:\n",
			"TestScripts/waits",
		},
	},
	{
		"calls-slow-steps-blocked", "A step that takes longer than usual is taken to wait.",
		rewrite{"waits.go", "return waiting >= inMySQL, nil", "return true, nil", "TestScripts/waits"},
	},
	{
		"sees-nobody-blocked", "A step that waits in MySQL is awaited until it fails.",
		rewrite{"waits.go", "return waiting >= inMySQL, nil", "return waiting > inMySQL, nil", "TestScripts/waits"},
	},
	{
		"attributes-replies-to-others", "A reply is taken for that to the same request of another actor.",
		rewrite{
			"actors.go", "\t\tf.step.Reply = reply\n",
			"\t\tfor _, x := range s.steps {\n" +
				"\t\t\tif x.Actor != a.name && x.Text == f.Text && x.Reply == \"\" {\n" +
				"\t\t\t\tx.Reply = reply\n\t\t\t}\n\t\t}\n",
			"TestScripts/waits",
		},
	},
	{
		"delivers-lost-replies", "A reply that is said to be lost arrives.",
		rewrite{"wire/proxy.go", "if l.action == LoseReply {", "if false {", "TestScripts/gallery/ghost-lock"},
	},
	{
		"keeps-leases", "A lease that is said to have ended goes on.",
		rewrite{"leases.go", "\t\tend()\n", "\t\t_ = end\n", "TestScripts/gallery/lock-redis"},
	},
	{
		"allows-one-preemption-less", "It allows one preemption fewer than it was told.",
		rewrite{
			"search.go", "a.preemptions <= b.Preemptions", "a.preemptions < b.Preemptions",
			"TestThePreemptionBoundCountsSwitchesFromActorsThatCouldGoOn",
		},
	},
	{
		"hides-divergence", "A schedule that cannot be repeated is not counted.",
		rewrite{"search.go", "s.tally.Diverged++", "", "TestWhatCannotBeRepeatedIsCounted"},
	},
	{
		"ends-early", "A schedule ends when the last client is answered, whatever is still under way.",
		rewrite{
			"schedule.go", "(!a.answered || len(a.pending) > 0 || len(a.flying) > 0)", "!a.answered",
			"TestWhatFollowsTheAnswerBelongsToTheSchedule",
		},
	},
}
