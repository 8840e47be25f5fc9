package stock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"stock/internal/must"
	"stock/nginx"
)

type composeService struct {
	Image       string
	Build       any
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	MemLimit    string   `yaml:"mem_limit"`
	PidsLimit   int      `yaml:"pids_limit"`
	Environment map[string]string
	Volumes     []string
}

func composeServices(t *testing.T) map[string]composeService {
	t.Helper()
	text, err := os.ReadFile("docker-compose.yml")
	must.Succeed(t, err)
	var file struct{ Services map[string]composeService }
	must.Succeed(t, yaml.Unmarshal(text, &file))
	if len(file.Services) == 0 {
		t.Fatal("docker-compose.yml has no services")
	}
	return file.Services
}

func TestEveryContainerIsConfined(t *testing.T) {
	t.Parallel()
	for name, service := range composeServices(t) {
		if !service.ReadOnly {
			t.Errorf("%s: the root is not read_only", name)
		}
		if !slices.Equal(service.CapDrop, []string{"ALL"}) {
			t.Errorf("%s: cap_drop is %v, want ALL", name, service.CapDrop)
		}
		if !slices.Contains(service.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: security_opt is %v, want no-new-privileges:true among them", name, service.SecurityOpt)
		}
		if service.MemLimit == "" {
			t.Errorf("%s has no mem_limit", name)
		}
		if service.PidsLimit == 0 {
			t.Errorf("%s has no pids_limit", name)
		}
	}
}

func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`:v?\d+\.\d+\.\d+$`)
	for name, service := range composeServices(t) {
		if service.Build == nil && !pinned.MatchString(service.Image) {
			t.Errorf("%s: the image %s has no exact version", name, service.Image)
		}
	}
	dockerfile, err := os.ReadFile("Dockerfile")
	must.Succeed(t, err)
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllSubmatch(dockerfile, -1) {
		image := string(from[1])
		// distroless has no tags for versions.
		if !pinned.MatchString(image) && !strings.HasPrefix(image, "gcr.io/distroless/") {
			t.Errorf("Dockerfile: the image %s has no exact version", image)
		}
	}
}

// The lab measures what docker compose runs only if both have the same configuration.
func TestComposeRunsTheNginxOfTheLab(t *testing.T) {
	t.Parallel()
	service := composeServices(t)["nginx"]
	for _, file := range []string{"nginx.conf", "templates/stock.conf.template"} {
		mount := "./nginx/" + filepath.Base(file) + ":/etc/nginx/" + file + ":ro"
		if !slices.Contains(service.Volumes, mount) {
			t.Errorf("nginx mounts %v, want %s among them", service.Volumes, mount)
		}
	}
	var values []string
	for name, value := range service.Environment {
		values = append(values, "${"+name+"}", value)
	}
	compose := strings.NewReplacer(values...).Replace(nginx.StockTemplate)
	// The lab's replicas have fixed addresses. Those of docker compose share a name, and so a line.
	compose = strings.NewReplacer("resolver 127.0.0.11 valid=1s; ", "", " resolve;", ";").Replace(compose)
	lab := nginx.Render("stock", "8000", []string{"stock:8080", "stock:8080"})
	for _, twice := range []string{
		" server stock:8080 max_fails=1 fail_timeout=10s;", " server stock:8080 max_fails=0 backup;",
	} {
		lab = strings.Replace(lab, twice+twice, twice, 1)
	}
	if compose != lab {
		t.Errorf("docker compose has\n%s\nbut the lab has\n%s", compose, lab)
	}
}
