package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"unsafe"
)

// bodyRecorder remembers where the body of a reply is in memory.
type bodyRecorder struct {
	*httptest.ResponseRecorder
	body *byte
}

func (r *bodyRecorder) Write(p []byte) (int, error) {
	r.body = unsafe.SliceData(p)
	return len(p), nil
}

// A copy for each request would let slow clients fill the memory, and decompressing for each would take the CPU from
// buyers.
func TestAllReadersOfADocsAssetShareOneCopy(t *testing.T) {
	t.Parallel()
	public := newReplica(t, options{}).Public()
	for _, encoding := range []string{"", "gzip"} {
		t.Run("Accept-Encoding="+encoding, func(t *testing.T) {
			t.Parallel()
			copies := map[*byte]bool{}
			var mu sync.Mutex
			var readers sync.WaitGroup
			for i := range 8 {
				readers.Go(func() {
					method := []string{http.MethodGet, http.MethodHead}[i%2]
					request := httptest.NewRequestWithContext(t.Context(), method, "/docs/swagger-ui-bundle.js", nil)
					request.Header.Set("Accept-Encoding", encoding)
					reply := &bodyRecorder{ResponseRecorder: httptest.NewRecorder()}
					public.ServeHTTP(reply, request)
					mu.Lock()
					defer mu.Unlock()
					copies[reply.body] = true
				})
			}
			readers.Wait()
			if len(copies) != 1 || copies[nil] {
				t.Errorf("8 readers were sent %d copies of the file, want all the same one", len(copies))
			}
		})
	}
}
