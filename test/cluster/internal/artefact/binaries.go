package artefact

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// KubernetesVersion is the version of a cluster. The module files in modules pin everything below it.
const KubernetesVersion = "v1.36.3"

// containerds are the versions of containerd that a node can have, by what state.Containerds calls them.
// The module file of the default is containerd.mod, of another one containerd-VERSION.mod.
var containerds = map[string]struct{ version, module string }{
	"2.4": {"v2.4.2", "github.com/containerd/containerd/v2"},
	"2.2": {"v2.2.9", "github.com/containerd/containerd/v2"},
}

// The module files are embedded as text: a folder with a go.mod of its own would
// be cut out of this module.
var (
	//go:embed modules
	modules embed.FS
	//go:embed pause.go.txt
	pauseSource string
)

// moduleFiles returns the module files of that name as go names them.
func moduleFiles(name string) map[string]string {
	files := map[string]string{}
	for _, kind := range []string{"mod", "sum"} {
		text, err := modules.ReadFile("modules/" + name + "." + kind)
		if err != nil {
			panic(err) // it is part of this program
		}
		files["go."+kind] = string(text)
	}
	return files
}

// program is one binary: its name and the package it is compiled from.
type program struct{ name, pkg string }

// binaries is a set of programs that one module file pins.
type binaries struct {
	name     string
	takes    string // how long on two processors, with nothing compiled yet
	files    map[string]string
	ldflags  string
	cgo      string // build tags of programs that are C in part; empty: no C
	programs []program
}

func kubernetesBinaries() binaries {
	version := "k8s.io/component-base/version"
	b := binaries{
		name:  "kubernetes",
		takes: "6 minutes",
		files: moduleFiles("kubernetes"),
		// Without a version in it a server calls itself v0.0.0, and clients refuse that.
		ldflags: "-s -w -X " + version + ".gitVersion=" + KubernetesVersion +
			" -X " + version + ".gitMajor=1 -X " + version + ".gitMinor=36 -X " + version + ".gitTreeState=clean",
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"} {
		b.programs = append(b.programs, program{name, "k8s.io/kubernetes/cmd/" + name})
	}
	b.programs = append(b.programs, program{"etcd", "go.etcd.io/etcd/server/v3"})
	return b
}

// containerdBinaries are one of state.Containerds.
func containerdBinaries(version string) binaries {
	name := "containerd"
	if version != state.Containerds[0] {
		name += "-" + version
	}
	c := containerds[version]
	b := binaries{
		name:    name,
		takes:   "2 minutes",
		files:   moduleFiles(name),
		ldflags: "-s -w -X " + c.module + "/version.Version=" + c.version,
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		b.programs = append(b.programs, program{name, c.module + "/cmd/" + name})
	}
	return b
}

// runcBinary is static, to run on any node. Its seccomp is the C library's: without
// the tag a pod with the profile RuntimeDefault would not start.
func runcBinary() binaries {
	return binaries{
		name:     "runc",
		takes:    "30 seconds",
		files:    moduleFiles("runc"),
		ldflags:  "-s -w -extldflags -static",
		cgo:      "seccomp,netgo,osusergo,urfave_cli_no_docs",
		programs: []program{{"runc", "github.com/opencontainers/runc"}},
	}
}

func pauseBinary() binaries {
	return binaries{
		name:     "pause",
		takes:    "10 seconds",
		files:    map[string]string{"go.mod": "module nodeagent.test/pause\n\ngo 1.26\n", "main.go": pauseSource},
		ldflags:  "-s -w",
		programs: []program{{"pause", "."}},
	}
}

// commands returns the last arguments of each go build: one for all programs that are
// called as go calls them, so that one is linked while the next is compiled.
func (b binaries) commands(dir string) [][]string {
	together := []string{"-o", dir + "/"}
	var alone [][]string
	for _, p := range b.programs {
		if path.Base(p.pkg) == p.name {
			together = append(together, p.pkg)
		} else {
			alone = append(alone, []string{"-o", filepath.Join(dir, p.name), p.pkg})
		}
	}
	if len(together) > 2 {
		alone = append(alone, together)
	}
	return alone
}

func (b binaries) key(goVersion string) cache.Key {
	inputs := []string{"binaries", goVersion, b.ldflags}
	for _, file := range []string{"go.mod", "go.sum", "main.go"} {
		inputs = append(inputs, b.files[file])
	}
	for _, p := range b.programs {
		inputs = append(inputs, p.name, p.pkg)
	}
	if b.cgo != "" {
		inputs = append(inputs, "cgo", b.cgo)
	}
	return cache.KeyOf(inputs...)
}

// Kubernetes returns the folder with the programs of Kubernetes and etcd.
func (m Maker) Kubernetes(ctx context.Context) (string, error) {
	return m.compile(ctx, kubernetesBinaries())
}

// Containerd returns the folder with containerd, its shim and ctr, of one of state.Containerds.
func (m Maker) Containerd(ctx context.Context, version string) (string, error) {
	return m.compile(ctx, containerdBinaries(version))
}

// Runc returns the folder with the newer runc.
func (m Maker) Runc(ctx context.Context) (string, error) { return m.compile(ctx, runcBinary()) }

// Pause returns the folder with the program that holds a pod's namespaces.
func (m Maker) Pause(ctx context.Context) (string, error) { return m.compile(ctx, pauseBinary()) }

func (m Maker) compile(ctx context.Context, b binaries) (string, error) {
	goVersion, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return "", &StepError{Step: "ask go for its version", Err: err, Next: "put the go command into PATH"}
	}
	return m.Cache.Entry(ctx, b.name, b.key(strings.TrimSpace(string(goVersion))), func(dir string) error {
		step := "compile " + b.name
		m.Say("==> %s: about %s the first time", step, b.takes)
		defer m.progress(step)()
		log, err := m.Cache.LogFile(b.name)
		if err != nil {
			return err
		}
		defer log.Close()
		source := filepath.Join(dir, "source")
		if err := os.Mkdir(source, 0o755); err != nil {
			return err
		}
		for name, text := range b.files {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		cgo := "CGO_ENABLED=0"
		if b.cgo != "" {
			cgo = "CGO_ENABLED=1"
		}
		for _, c := range b.commands(dir) {
			err := run(ctx, log, command{
				dir: source,
				env: []string{cgo, "GOWORK=off", "GOFLAGS=", "GOOS=linux", "GOARCH=amd64"},
				argv: slices.Concat([]string{"go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false",
					"-tags", b.cgo, "-ldflags", b.ldflags}, c),
			})
			if err != nil {
				return &StepError{
					Step: fmt.Sprintf("%s: go build %s", step, strings.Join(c, " ")), Log: log.Name(), Err: err,
					Next: "see whether the Go module proxy answers (go env GOPROXY), then run the command again: it goes on where it stopped",
				}
			}
		}
		return nil
	})
}
