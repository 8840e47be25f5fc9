package stock

import "context"

// Point is a place in a deduction at which a lab can stop it to replay a race.
type Point string

// The pause points, in the order in which read-modify-write passes them. A strategy passes those that apply to it. An
// order by UPDATE passes BeforeWrite first.
const (
	AfterLock    Point = "after-lock"
	AfterRead    Point = "after-read"
	BeforeWrite  Point = "before-write"
	BeforeCommit Point = "before-commit"
	BeforeUnlock Point = "before-unlock"
)

// Points lists the pause points.
var Points = []Point{AfterLock, AfterRead, BeforeWrite, BeforeCommit, BeforeUnlock}

// PauseFunc stops a deduction at a point until it returns. If it returns an error, the deduction ends.
type PauseFunc func(context.Context, Point) error

// At pauses at a point, unless the function is nil. Its error is an ErrBusy: pause only when every write that was
// sent has been answered.
func (p PauseFunc) At(ctx context.Context, point Point) error {
	if p == nil {
		return nil
	}
	if err := p(ctx, point); err != nil {
		return Interrupted(err)
	}
	return nil
}
