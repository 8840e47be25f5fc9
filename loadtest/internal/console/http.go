package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"stock/internal/monotonic"
	"stock/internal/origin"
	"stock/loadtest/internal/fault"
)

// handler routes requests. Whatever changes something is a POST with a JSON body, which no other page can send: its
// browser would ask for permission first, and is refused.
func (c *Console) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.getPage)
	mux.HandleFunc("GET /state", c.getState)
	mux.HandleFunc("GET /events", c.getEvents)
	mux.HandleFunc("GET /traces/{id}", c.getTrace)
	mux.HandleFunc("GET /runs/{id}/{file...}", c.getReport)
	for path, action := range map[string]func(*http.Request) error{
		"/run":          reading(c.postRun),
		"/fault":        reading(c.postFault),
		"/fault/next":   reading(c.postNext),
		"/fault/finish": reading(c.postFinish),
		"/explore":      reading(c.postExplore),
		"/cancel":       reading(c.postCancel),
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			err := asJSON(r)
			if err == nil {
				err = action(r)
			}
			if err != nil {
				fail(w, err)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	return c.protect(mux)
}

// protect refuses requests from other pages, and from names that were made to lead here.
func (c *Console) protect(next http.Handler) http.Handler {
	policy := origin.Policy{Linked: true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		switch err := policy.Check(r); {
		case errors.Is(err, origin.ErrHost):
			fail(w, refused{http.StatusMisdirectedRequest, fmt.Sprintf("%q is not the address of this lab", r.Host)})
		case errors.Is(err, origin.ErrOrigin):
			fail(w, refused{http.StatusForbidden, "the lab takes requests from its own page only"})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// refused is an error with the status of its answer.
type refused struct {
	status int
	words  string
}

func (r refused) Error() string { return r.words }

// conflict refuses what does not fit the state of the lab.
func conflict(format string, args ...any) error {
	return refused{http.StatusConflict, fmt.Sprintf(format, args...)}
}

// malformed refuses a request that asks for something that does not exist.
func malformed(format string, args ...any) error {
	return refused{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if r := (refused{}); errors.As(err, &r) {
		status = r.status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	answer := struct {
		Error string `json:"error"`
	}{err.Error()}
	if text, err := json.Marshal(answer); err == nil {
		_, _ = w.Write(text)
	}
}

// asJSON refuses a request whose body is not JSON.
func asJSON(r *http.Request) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refused{http.StatusUnsupportedMediaType, "the body must be JSON, with Content-Type: application/json"}
	}
	return nil
}

// maxBody is more than any request of the page has.
const maxBody = 64 << 10

// reading decodes the body of a request for an action.
func reading[T any](action func(r *http.Request, body T) error) func(*http.Request) error {
	return func(r *http.Request) error {
		var body T
		decoder := json.NewDecoder(io.LimitReader(r.Body, maxBody))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&body); err != nil {
			return malformed("the body cannot be understood: %v", err)
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return malformed("the body must be one JSON object")
		}
		return action(r, body)
	}
}

func (c *Console) getPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", c.policy)
	_, _ = w.Write(c.page)
}

func (c *Console) getState(w http.ResponseWriter, _ *http.Request) {
	text, _, err := c.board.encoded()
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

const (
	// eventInterval is the least time between two events.
	eventInterval = 150 * time.Millisecond
	// heartbeat is the time after which something is sent in any case, so that a tab that has gone is noticed.
	heartbeat = 10 * time.Second
)

// getEvents sends the state whenever it has changed.
func (c *Console) getEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	for {
		text, changed, err := c.board.encoded()
		if err != nil {
			return
		}
		_ = stream.SetWriteDeadline(time.Now().Add(heartbeat))
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil || stream.Flush() != nil {
			return
		}
		if monotonic.Sleep(r.Context(), eventInterval) != nil {
			return
		}
		select {
		case <-changed:
		case <-time.After(heartbeat):
		case <-r.Context().Done():
			return
		}
	}
}

// reportPolicy lets a report be one file, with its styles and scripts, that sends nothing anywhere. The sandbox gives
// it an origin of its own, so its scripts can neither read the lab's page nor control it.
const reportPolicy = "sandbox allow-scripts allow-popups allow-modals; default-src 'none'; " +
	"style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// reportFile matches the forms of a report.
var reportFile = regexp.MustCompile(`^report\.(html|md|json)$`)

// addReport makes a directory's report available, and returns its address.
func (c *Console) addReport(dir string) string {
	id := filepath.Base(dir)
	c.mu.Lock()
	c.reports[id] = dir
	c.mu.Unlock()
	return "/runs/" + id + "/report.html"
}

func (c *Console) getReport(w http.ResponseWriter, r *http.Request) {
	id, name := r.PathValue("id"), r.PathValue("file")
	c.mu.Lock()
	dir, known := c.reports[id]
	c.mu.Unlock()
	if !known || !reportFile.MatchString(name) {
		fail(w, refused{http.StatusNotFound, "this lab has no such report"})
		return
	}
	file, err := os.OpenInRoot(dir, name)
	if err != nil {
		fail(w, refused{http.StatusNotFound, fmt.Sprintf("%s is not there", name)})
		return
	}
	defer file.Close()
	w.Header().Set("Content-Security-Policy", reportPolicy)
	// A page that a sandboxed one opens inherits the sandbox, and may not have this header then.
	w.Header().Del("Cross-Origin-Opener-Policy")
	http.ServeContent(w, r, name, time.Time{}, file)
}

// activityRequest is about the run or the fault that the page shows.
type activityRequest struct {
	ID int `json:"id"`
}

func (c *Console) postCancel(_ *http.Request, body activityRequest) error {
	a, err := c.going("", body.ID)
	if err == nil {
		a.cancel()
	}
	return err
}

// find returns the scenario with exactly this name.
func find(name string) (fault.Scenario, bool) {
	i := slices.IndexFunc(fault.Scenarios, func(s fault.Scenario) bool { return s.Name == name })
	if i < 0 {
		return fault.Scenario{}, false
	}
	return fault.Scenarios[i], true
}
