// Krew builds the archives of the kubectl plugin and krew's manifest of them: the same bytes from the same sources. Then krew's own
// validator reads the manifest, and krew installs the plugin of this machine from its archive. `make krew` runs it.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"
)

// A platform is one that the plugin is built for.
type platform struct{ OS, Arch, Archive, Sum, Bin string }

var platforms = []platform{
	{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}, {OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}, {OS: "windows", Arch: "amd64"},
}

func main() {
	version := flag.String("version", "v0.0.0", "version of the plugin, as krew takes it")
	out := flag.String("out", "bin/plugin", "directory for the archives and the manifest")
	tools := flag.String("tools", "", "directory with krew and validate-krew-manifest")
	flag.Parse()
	ctx := context.Background()
	err := release(ctx, *version, *out)
	if err == nil {
		err = install(ctx, *tools, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

// release writes the archives and the manifest.
func release(ctx context.Context, version, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for i := range platforms {
		p := &platforms[i]
		if err := p.build(ctx, version, out); err != nil {
			return fmt.Errorf("%s/%s: %w", p.OS, p.Arch, err)
		}
		fmt.Printf("%s  %s\n", p.Sum, p.Archive)
	}
	text, err := os.ReadFile("deploy/krew/why-terminating.yaml.tmpl")
	if err != nil {
		return err
	}
	t, err := template.New("manifest").Parse(string(text))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, map[string]any{"Version": version, "Platforms": platforms}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, manifest), b.Bytes(), 0o600)
}

// manifest is the name of krew's manifest.
const manifest = "why-terminating.yaml"

// install has krew check the manifest, and install the plugin of this machine from its archive, without a network.
func install(ctx context.Context, tools, out string) error {
	dir, err := os.MkdirTemp("", "krew")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, index := filepath.Join(dir, "root"), filepath.Join(dir, "index")
	env := append(os.Environ(), "KREW_ROOT="+root, "KREW_DEFAULT_INDEX_URI="+index, "KREW_NO_UPGRADE_CHECK=1", "PATH="+filepath.Join(root,
		"bin")+":"+os.Getenv("PATH"))
	var said []byte
	for _, args := range [][]string{
		{filepath.Join(tools, "validate-krew-manifest"), "-manifest", filepath.Join(out, manifest), "-skip-install"},
		{"git", "init", "-q", index}, // krew wants one, even an empty one
		{"git", "-C", index, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "--allow-empty", "-m", "empty"},
		{filepath.Join(tools, "krew"), "update"},
		{filepath.Join(tools, "krew"), "install", "--no-update-index", "--manifest", filepath.Join(out, manifest), "--archive", filepath.Join(out,
			archive(runtime.GOOS, runtime.GOARCH))},
		{filepath.Join(root, "bin", "kubectl-why_terminating"), "--help"},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = env
		if said, err = cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, said)
		}
	}
	if !strings.Contains(string(said), "\n  kubectl why-terminating [POD") {
		return fmt.Errorf("the plugin that krew has installed does not call itself kubectl why-terminating:\n%s", said)
	}
	fmt.Println("krew has installed it from", archive(runtime.GOOS, runtime.GOARCH))
	return nil
}

func archive(system, arch string) string {
	return fmt.Sprintf("kubectl-why_terminating_%s_%s.tar.gz", system, arch)
}

// build makes the archive of a platform: the program, the licence and, for shells, the completion.
func (p *platform) build(ctx context.Context, version, out string) error {
	p.Bin = "kubectl-why_terminating"
	if p.OS == "windows" {
		p.Bin += ".exe"
	}
	program := filepath.Join(out, p.OS+"-"+p.Arch, p.Bin)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", program, "./cmd/kubectl-why_terminating")
	cmd.Env = append(os.Environ(), "GOOS="+p.OS, "GOARCH="+p.Arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	files := []string{program, "LICENSE"}
	if p.OS != "windows" {
		files = append(files, "deploy/krew/kubectl_complete-why_terminating")
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mode := int64(0o755)
		if strings.HasSuffix(path, "LICENSE") {
			mode = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.Base(path), Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0),
			Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	sum := sha256.Sum256(b.Bytes())
	p.Sum, p.Archive = hex.EncodeToString(sum[:]), archive(p.OS, p.Arch)
	return os.WriteFile(filepath.Join(out, p.Archive), b.Bytes(), 0o600)
}
