package page

import "stock/loadtest/internal/report"

type sweepView struct{}

func newSweeps(*report.Sweep) []sweepView { return nil }
