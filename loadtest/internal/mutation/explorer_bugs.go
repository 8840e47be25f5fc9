package mutation

// explorerBugs are mistakes that an explorer can make without anybody noticing: it finds less than there is. Tests of
// the gallery hold a script to what it expects.
var explorerBugs = []Mutant{
	explorerBug("forgets-a-dependency", "A step that reads is taken to commute with one that writes.",
		"search.go", " && disjoint(o.Writes, other.Reads) && disjoint(o.Reads, other.Writes)", "",
		"TestTheReductionFindsEveryOutcome"),
	explorerBug("forgets-what-a-commit-shows", "The end of a transaction is taken to touch nothing.",
		"wire/sql.go", "effect{reads: s.touched, writes: s.changed, local: len", "effect{local: len",
		"TestScripts/gallery/unlock-before-commit"),
	explorerBug("trusts-functions", "A stored function is taken to touch nothing.",
		"wire/sql.go", "if calls(tokens, known) || ", "if ", "TestScripts/hidden"),
	explorerBug("wakes-nobody",
		"A step that was postponed is not offered again when another one has changed what it reads.",
		"search.go", "return !o.commutes(p.Options[at])", "return false", "TestTheReductionFindsEveryOutcome"),
	explorerBug("waits-for-no-waiter", "A step that has waited in MySQL is not awaited when it can go on.",
		"schedule.go", "\t\tcase len(a.flying) > 0:\n",
		"\t\tcase slices.ContainsFunc(a.flying, func(f *exchange) bool {\n"+
			"\t\t\treturn f.step != nil && f.step.Kind == trace.Waits\n\t\t}):\n"+
			"\t\tcase len(a.flying) > 0:\n",
		"TestScripts/waits"),
	explorerBug("calls-slow-steps-blocked", "A step that takes longer than usual is taken to wait.",
		"waits.go", "return waiting >= inMySQL, nil", "return true, nil", "TestScripts/waits"),
	explorerBug("sees-nobody-blocked", "A step that waits in MySQL is awaited until it fails.",
		"waits.go", "return waiting >= inMySQL, nil", "return waiting > inMySQL, nil", "TestScripts/waits"),
	explorerBug("attributes-replies-to-others", "A reply is taken for that to the same request of another actor.",
		"actors.go", "\t\tf.step.Reply = reply\n",
		"\t\tfor _, x := range s.steps {\n"+
			"\t\t\tif x.Actor != a.name && x.Text == f.Text && x.Reply == \"\" {\n"+
			"\t\t\t\tx.Reply = reply\n\t\t\t}\n\t\t}\n",
		"TestScripts/waits"),
	explorerBug("delivers-lost-replies", "A reply that is said to be lost arrives.",
		"wire/proxy.go", "if l.action == LoseReply {", "if false {", "TestScripts/gallery/ghost-lock"),
	explorerBug("keeps-leases", "A lease that is said to have ended goes on.",
		"leases.go", "\t\tend()\n", "\t\t_ = end\n", "TestScripts/gallery/lock-redis"),
	explorerBug("allows-one-preemption-less", "It allows one preemption fewer than it was told.",
		"search.go", "a.preemptions <= b.Preemptions", "a.preemptions < b.Preemptions",
		"TestThePreemptionBoundCountsSwitchesFromActorsThatCouldGoOn"),
	explorerBug("hides-divergence", "A schedule that cannot be repeated is not counted.",
		"search.go", "s.tally.Diverged++", "", "TestWhatCannotBeRepeatedIsCounted"),
	explorerBug("ends-early", "A schedule ends when the last client is answered, whatever is still under way.",
		"schedule.go", "(!a.answered || len(a.pending) > 0 || len(a.flying) > 0)", "!a.answered",
		"TestWhatFollowsTheAnswerBelongsToTheSchedule"),
}

func explorerBug(name, planted, file, from, to, test string) Mutant {
	return Mutant{
		Name: "explorer-" + name, Family: "explorer", Planted: planted, rewrite: &rewrite{file, from, to, test},
	}
}
