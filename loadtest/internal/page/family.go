package page

import "strings"

// families are groups of strategies, by the beginning of their names. The first that matches counts. The lab knows
// strategies by their names alone.
var families = []struct{ prefix, family string }{
	{"noop", "no protection"}, {"none", "no protection"}, {"decrement", "no protection"},
	{"redis-none", "no protection"},
	{"mutex", "mutex in the process"},
	{"optimistic", "optimistic"}, {"redis-watch", "optimistic"},
	{"batch", "batch"},
	{"redis-", "script in Redis"},
	{"lock-redis", "Redis lock"}, {"lock-redlock", "Redis lock"},
	{"lock-", "other lock"},
}

// family is the group of a strategy.
func family(strategy string) string {
	for _, f := range families {
		if strings.HasPrefix(strategy, f.prefix) {
			return f.family
		}
	}
	return "SQL"
}
