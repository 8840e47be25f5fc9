// Package scripts has the scripts that loadtest explore comes with. Each says in its first lines what it shows.
package scripts

import "embed"

// Files are the scripts.
//
//go:embed *.star
var Files embed.FS
