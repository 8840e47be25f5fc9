package stock_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"stock/internal/must"
)

const alertsDir = "deploy/prometheus/"

type alert struct {
	Name        string `yaml:"alert"`
	Expr        string
	Annotations map[string]string
}

func readAlerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	readYAML(t, alertsDir+"alerts.yml", &file)
	var alerts []alert
	for _, group := range file.Groups {
		alerts = append(alerts, group.Rules...)
	}
	if len(alerts) == 0 {
		t.Fatal("alerts.yml has no alert")
	}
	return alerts
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// The time series on which the alerts fire or do not are in alerts_test.yml. The test is skipped if Prometheus is not
// installed, unless the environment sets STOCK_REQUIRE_PROMTOOL.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		const missing = "promtool is not installed: apt-get install --no-install-recommends prometheus"
		if os.Getenv("STOCK_REQUIRE_PROMTOOL") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	for _, command := range []string{
		"check config " + alertsDir + "prometheus.yml", // and the rules that it names
		"test rules " + alertsDir + "alerts_test.yml",
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", command, err, out)
		}
	}
}

// promtool says nothing about an alert that no time series tests.
func TestEveryAlertIsTestedAndHasARunbook(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, alertsDir+"alerts_test.yml", &file)
	fires, staysQuiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, moment := range test.AlertRuleTest {
			if len(moment.ExpAlerts) > 0 {
				fires[moment.Alertname] = true
			} else {
				staysQuiet[moment.Alertname] = true
			}
		}
	}
	for _, a := range readAlerts(t) {
		if !fires[a.Name] || !staysQuiet[a.Name] {
			t.Errorf("alerts_test.yml must have a series on which %s fires, and one on which it does not", a.Name)
		}
		checkLink(t, document{path: "the alert " + a.Name}, a.Annotations["runbook"])
	}
}

var (
	metricInRule = regexp.MustCompile(`\b((?:stock|go|process)_[a-z_]+)(?:{([^}]*)})?`)
	labelInRule  = regexp.MustCompile(`(\w+)=~?"([^"]+)"`)
)

// checkAlerts checks that the service exports what the alerts ask for.
func (l *runningLab) checkAlerts(t *testing.T) {
	reply, err := http.Get(l.admin + "/metrics")
	must.Succeed(t, err)
	defer reply.Body.Close()
	metrics, err := io.ReadAll(reply.Body)
	must.Succeed(t, err)
	for _, a := range readAlerts(t) {
		for _, missing := range missingSeries(a.Expr, metrics) {
			t.Errorf("%s: the service does not export %s", a.Name, missing)
		}
	}
}

// missingSeries returns the metrics of a rule, and the values of their labels, that are not among the metrics of a
// service. Prometheus adds the label job.
func missingSeries(expr string, metrics []byte) (missing []string) {
	for _, used := range metricInRule.FindAllStringSubmatch(expr, -1) {
		name, labels := used[1], used[2]
		if !regexp.MustCompile(`(?m)^` + name + `[{ ]`).Match(metrics) {
			missing = append(missing, name)
			continue
		}
		for _, label := range labelInRule.FindAllStringSubmatch(labels, -1) {
			for value := range strings.SplitSeq(label[2], "|") {
				pair := fmt.Sprintf("%s=%q", label[1], value)
				series := `(?m)^` + name + `{([^}]*,)?` + regexp.QuoteMeta(pair) + `[,}]`
				if label[1] != "job" && !regexp.MustCompile(series).Match(metrics) {
					missing = append(missing, name+"{"+pair+"}")
				}
			}
		}
	}
	return missing
}
