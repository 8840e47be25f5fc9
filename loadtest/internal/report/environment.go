package report

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"stock/internal/stats"
)

// Environment is what figures depend on besides the code. Reports of different environments cannot be compared.
type Environment struct {
	StartedAt time.Time `json:"started_at"`
	Revision  string    `json:"revision,omitempty"` // git commit of the lab, with "+dirty" if files were modified
	Options   []string  `json:"options"`            // the command line
	Seed      uint64    `json:"seed"`

	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	Go     string `json:"go"`

	Servers []Server `json:"servers"`

	// SharedHost is set if load and servers share the host and compete for it: rates are lower bounds.
	SharedHost bool     `json:"shared_host"`
	Notes      []string `json:"notes,omitempty"` // other facts that a reader should know
}

// Server is one kind of server of the topology.
type Server struct {
	Name    string `json:"name"` // "mysql", "redis", "nginx", "service"
	Version string `json:"version"`
	// Settings are those of durability, isolation and persistence.
	Settings map[string]string `json:"settings,omitempty"`
}

// String returns the name and the version. A version that begins with the name is returned alone.
func (s Server) String() string {
	if strings.HasPrefix(strings.ToLower(s.Version), strings.ToLower(s.Name)) {
		return s.Version
	}
	return strings.TrimSpace(s.Name + " " + s.Version)
}

// LocalEnvironment returns the facts about this process and its host. The caller sets Options, Seed, Servers and
// SharedHost. Facts that cannot be determined are empty.
func LocalEnvironment() Environment {
	e := Environment{
		StartedAt: time.Now().UTC().Truncate(time.Second),
		Revision:  revision(),
		Options:   []string{},
		CPU:       field("/proc/cpuinfo", "model name", ":"),
		Cores:     runtime.NumCPU(),
		OS:        strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`),
		Arch:      runtime.GOARCH,
		Go:        runtime.Version(),
		Servers:   []Server{},
	}
	if e.OS == "" {
		e.OS = runtime.GOOS
	}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err == nil {
		e.Kernel = unix.ByteSliceToString(uname.Release[:])
	}
	return e
}

// field returns the value of the first line "name<separator>value" of a file.
func field(path, name, separator string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, found := strings.Cut(lines.Text(), separator)
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// revision returns the commit stamped into the build, or else that of the working directory: `go run` stamps none.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		var hash, changed string
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				hash = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+dirty"
			}
		}
		if hash != "" {
			return hash + changed
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	describe := exec.CommandContext(ctx, "git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+dirty")
	out, err := describe.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// lines describes the environment for people.
func (e Environment) lines() []string {
	var lines []string
	add := func(parts ...string) {
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		if len(parts) > 0 {
			lines = append(lines, strings.Join(parts, " · "))
		}
	}
	cores := ""
	if e.Cores > 0 {
		cores = plural(e.Cores, "core")
	}
	add(e.CPU, cores, e.OS, e.Kernel, e.Arch, e.Go)
	for _, s := range e.Servers {
		parts := []string{s.String()}
		for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
			parts = append(parts, name+"="+s.Settings[name])
		}
		add(parts...)
	}
	revision := ""
	if e.Revision != "" {
		revision = "revision " + e.Revision
	}
	started := ""
	if !e.StartedAt.IsZero() {
		started = "started " + e.StartedAt.UTC().Format(time.RFC3339)
	}
	add(started, revision, fmt.Sprintf("seed %d", e.Seed), strings.Join(e.Options, " "))
	lines = append(lines, e.Notes...)
	if e.SharedHost {
		lines = append(lines, "Load and servers share this host and compete for it: every rate is a lower bound.")
	}
	return lines
}

// Conditions describes the environment, and what the load driver took of the CPU.
func (r *Report) Conditions() []string {
	lines := r.Environment.lines()
	var used []float64
	for _, row := range r.Rows {
		if row.DriverCPUUSPerRequest > 0 {
			used = append(used, row.DriverCPUUSPerRequest)
		}
	}
	if len(used) > 0 {
		lines = append(lines, fmt.Sprintf("The load driver used %s µs of CPU per request, median of the rows (%s to %s).",
			digits(stats.Median(used)), digits(slices.Min(used)), digits(slices.Max(used))))
	}
	return lines
}
