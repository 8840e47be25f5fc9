package lockstest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"stock/internal/locks"
)

var began = time.Now()

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// replay makes a history of the grants.
func replay(grants []Grant) *History {
	h := &History{began: began}
	for i, g := range grants {
		g.id = i + 1
		h.grants = append(h.grants, &g)
	}
	return h
}

func TestCheckFindsHistoriesThatOneLockCannotHave(t *testing.T) {
	t.Parallel()
	down := errors.New("the server is down")
	for name, test := range map[string]struct {
		grants []Grant
		want   string // in the error; empty if one lock can have the history
	}{
		"one after the other": {[]Grant{
			{asked: at(0), granted: at(1), over: at(2), unlock: at(2), replied: at(4)},
			{asked: at(0), granted: at(3), over: at(5), unlock: at(5), replied: at(6)}, // granted during the Unlock before it
		}, ""},
		"two at once": {[]Grant{
			{asked: at(0), granted: at(1), over: at(4), unlock: at(4), replied: at(5)},
			{asked: at(2), granted: at(3), over: at(6), unlock: at(6), replied: at(7)},
		}, "two hold the lock"},
		"a lease that ended": {[]Grant{
			{asked: at(0), granted: at(1), over: at(5), unlock: at(9), replied: at(10), err: locks.ErrLeaseLost},
			{asked: at(2), granted: at(6), over: at(7), unlock: at(7), replied: at(8)},
		}, ""},
		"an Unlock that released another client's lock": {[]Grant{
			{asked: at(0), granted: at(1), over: at(5), unlock: at(9), replied: at(10)},
			{asked: at(2), granted: at(6), over: at(20), unlock: at(20), replied: at(21)},
			{asked: at(11), granted: at(12), over: at(13), unlock: at(13), replied: at(14)},
		}, "held by another client"},
		"an Unlock that claims to have released it": {[]Grant{
			{asked: at(0), granted: at(1), over: at(5), unlock: at(9), replied: at(10)},
			{asked: at(2), granted: at(6), over: at(20), unlock: at(20), replied: at(21)},
		}, "held by another client"},
		"an Unlock without a reply that took effect at once": {[]Grant{
			{asked: at(0), granted: at(1), over: at(2), unlock: at(2), replied: at(8), err: down},
			{asked: at(0), granted: at(3), over: at(4), unlock: at(4), replied: at(5)},
		}, ""},
		"an Unlock without a reply that took effect late": {[]Grant{
			{asked: at(0), granted: at(1), over: at(2), unlock: at(2), replied: at(3), err: down},
			{asked: at(0), granted: at(9), over: at(10), unlock: at(10), replied: at(11)},
		}, ""},
		"a lock that was not released": {[]Grant{
			{asked: at(0), granted: at(1)},
		}, "not released"},
		"a lock that was reported lost before its deadline": {[]Grant{
			{asked: at(0), granted: at(1), deadline: at(9), over: at(2), unlock: at(2), replied: at(3), err: locks.ErrLeaseLost},
		}, "lost before its deadline"},
		"a token that falls": {[]Grant{
			{token: 7, asked: at(0), granted: at(1), over: at(2), unlock: at(2), replied: at(3)},
			{token: 6, asked: at(4), granted: at(5), over: at(6), unlock: at(6), replied: at(7)},
		}, "the token does not rise"},
		"a token that is given twice": {[]Grant{
			{token: 7, asked: at(0), granted: at(1), over: at(2), unlock: at(2), replied: at(3)},
			{token: 7, asked: at(4), granted: at(5), over: at(6), unlock: at(6), replied: at(7)},
		}, "the token does not rise"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := replay(test.grants).Check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Check: %v, want %q", err, test.want)
			}
		})
	}
}
