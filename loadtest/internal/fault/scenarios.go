package fault

import (
	"slices"
	"time"
)

// Scenarios lists every story. To add one, add it to the list of its family.
var Scenarios = slices.Concat(
	Basic, []Scenario{holderPauses}, holderScenarios, redisScenarios, rowScenarios, retryScenarios, crowdScenarios,
	limitScenarios,
)

// Basic are the scenarios that mean something for every strategy. A lab plays them after its load.
var Basic = []Scenario{holderDies, lateWrite, clientRetries}

// BasicTime is how long the basic scenarios take at most, if they are played in parallel.
const BasicTime = patience + 8*time.Second
