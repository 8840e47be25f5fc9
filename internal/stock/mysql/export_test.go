package mysql

// DeleteUnits is for tests: no request has a lock on a row that is gone.
var DeleteUnits = deleteUnits
