// Package docs has what pages show as the documents do.
package docs

import _ "embed"

// Statements is what strategies send to their stores, as JSON.
//
//go:embed statements.json
var Statements []byte

// Size is the record from which loadtest size predicts, as JSON.
//
//go:embed size.json
var Size []byte
