package artefact

import (
	"context"
	"os/exec"
	"slices"
	"strings"
)

// debianSuite is the Debian of the nodes, whatever the machine itself runs.
const (
	debianSuite    = "bookworm"
	debianSecurity = debianSuite + "-security"
)

// debianSources returns lines for apt that name the places this machine itself
// takes that Debian from, nearest mirror and all. It is empty where the machine
// has no such place, or not all of it; mmdebstrap then takes its own default.
func debianSources(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format",
		"$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages").Output()
	if err != nil {
		return ""
	}
	return parseIndexTargets(string(out))
}

// parseIndexTargets takes lines of origin, codename, address, suite and component.
func parseIndexTargets(out string) string {
	var lines []string
	// Updates alone make no system, and one of the nodes' kernels is in the updates.
	need := map[string]bool{debianSuite: true, debianSecurity: true}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 5 || f[0] != "Debian" || f[4] != "main" {
			continue
		}
		if f[1] != debianSuite && !strings.HasPrefix(f[1], debianSuite+"-") {
			continue
		}
		delete(need, f[1])
		source := "deb [signed-by=" + debianKeyring + "] " + f[2] + " " + f[3] + " main"
		if !slices.Contains(lines, source) {
			lines = append(lines, source)
		}
	}
	if len(need) > 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// mmdebstrap returns the command that makes a root file system below target, a folder or tar.
func mmdebstrap(ctx context.Context, variant string, packages []string, target, temp string, extra ...string) command {
	argv := []string{
		"mmdebstrap", "--mode=root", "--variant=" + variant, "--architectures=amd64",
		"--include=" + strings.Join(packages, ","),
		`--aptopt=Apt::Install-Recommends "false"`,
	}
	// What nobody reads on a test node, half of all files.
	for _, path := range []string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*"} {
		argv = append(argv, "--dpkgopt=path-exclude="+path)
	}
	for _, option := range []string{"Acquire::http::Proxy", "Acquire::https::Proxy"} {
		out, err := exec.CommandContext(ctx, "apt-config", "shell", "V", option).Output()
		if v := strings.TrimSpace(string(out)); err == nil && strings.HasPrefix(v, "V='") {
			argv = append(argv, "--aptopt="+option+` "`+strings.Trim(strings.TrimPrefix(v, "V="), "'")+`"`)
		}
	}
	argv = append(argv, extra...)
	argv = append(argv, debianSuite, target)
	sources := debianSources(ctx)
	if sources != "" {
		argv = append(argv, "-")
	}
	return command{argv: argv, env: []string{"TMPDIR=" + temp}, stdin: sources}
}
