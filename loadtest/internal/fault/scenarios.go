package fault

import (
	"slices"
	"time"
)

// Scenarios lists every story. To add one, write it in a file and add it here.
var Scenarios = slices.Concat(
	Basic,
	pauseScenarios,
	leaseScenarios,
	fenceScenarios,
	renewalScenarios,
	grantedTwiceScenarios,
	failoverScenarios,
	ghostLocks,
	waitScenarios,
	isolationScenarios,
	orderScenarios,
	retryScenarios,
	nginxScenarios,
	replicaScenarios,
	staleWriteScenarios,
	mutexScenarios,
	clockScenarios,
	masterScenarios,
	noIndexScenarios,
	databaseCrashScenarios,
	partitionScenarios,
	clusterScenarios,
	poolScenarios,
	starvationScenarios,
	outOfSpaceScenarios,
	sequenceScenarios,
	falseSoldOutScenarios,
	holdScenarios,
	streamScenarios,
	stockSetScenarios,
	commitScenarios,
	passScenarios,
)

// Basic are the scenarios that mean something for every strategy. A lab plays them after its load.
var Basic = []Scenario{holderDies, lateWrite, clientRetries}

// BasicTime is how long the basic scenarios take at most, if they are played in parallel.
const BasicTime = patience + 8*time.Second
