package tenant

import "errors"

// leftError says what a lab could not remove.
type leftError struct{ error }

func (e leftError) Unwrap() error { return e.error }

// AsLeft marks an error of Remove, so that Left finds it in errors that wrap it. Nil stays nil.
func AsLeft(err error) error {
	if err == nil {
		return nil
	}
	return leftError{err}
}

// Left returns those of the errors in err that say what a lab could not remove; nil if there is none. It is for errors
// of which only that is of interest, such as those of a start that was interrupted.
func Left(err error) error {
	switch err := err.(type) { //nolint:errorlint // it looks into all errors, of which errors.As finds only the first
	case leftError:
		return err
	case interface{ Unwrap() error }:
		return Left(err.Unwrap())
	case interface{ Unwrap() []error }:
		var left []error
		for _, part := range err.Unwrap() {
			left = append(left, Left(part))
		}
		return errors.Join(left...)
	}
	return nil
}
