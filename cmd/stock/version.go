package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"stock/internal/stock/httpapi"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the module, the revision and the Go version it was built with",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildVersion()
			revision := cmp.Or(v.Revision, "unknown")
			if v.Modified {
				revision += " with changes"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "stock %s, revision %s, %s\n", v.Version, revision, v.Go)
			return err
		},
	}
}

// revision is set by the linker (-X main.revision=...), because Go cannot see the repository when an image is built,
// nor with -buildvcs=false. It ends in +dirty if files were changed.
var revision string

// buildVersion returns what the Go command or the linker recorded in the binary.
func buildVersion() httpapi.Version {
	v := httpapi.Version{Version: "unknown", Go: runtime.Version()}
	v.Revision, v.Modified = strings.CutSuffix(revision, "+dirty")
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(info.Main.Version, v.Version)
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Revision = setting.Value
		case "vcs.time":
			v.Time = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	return v
}
