// Package docs has what a program reads and a document shows.
package docs

import _ "embed"

// Size is the record from which loadtest size predicts, as JSON.
//
//go:embed size.json
var Size []byte
