package artefact

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/image"
)

// Image returns the path of an image archive. One with the same contents is not made again.
// What the packages bring and a shell pattern of leaveOut matches is not in it.
func (m Maker) Image(ctx context.Context, spec image.Spec, packages, leaveOut []string) (string, error) {
	full, err := image.FullName(spec.Name)
	if err != nil {
		return "", err
	}
	inputs := []string{"image", "2", full, strings.Join(spec.Entrypoint, "\n"), strings.Join(spec.Cmd, "\n"), spec.StopSignal}
	if len(packages) > 0 {
		base, err := m.base(ctx, packages, leaveOut)
		if err != nil {
			return "", err
		}
		spec.Base = filepath.Join(base, "rootfs.tar")
		inputs = append(inputs, filepath.Base(base))
	}
	for i, f := range spec.Files {
		source, err := filepath.EvalSymlinks(f.Source)
		if err != nil {
			return "", fmt.Errorf("file for image %s: %w", spec.Name, err)
		}
		spec.Files[i].Source = source
		key, err := cache.KeyOfTree(source)
		if err != nil {
			return "", err
		}
		inputs = append(inputs, f.Destination, string(key))
	}
	file := strings.NewReplacer("/", "_", ":", "_").Replace(spec.Name) + ".tar"
	dir, err := m.Cache.Entry(ctx, "image", cache.KeyOf(inputs...), func(dir string) error {
		return image.Write(filepath.Join(dir, file), spec)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, file), nil
}

// Java's package fails to install where the folder of the manual pages, which
// are left out, does not exist.
const manFolder = `mkdir -p "$1/usr/share/man/man1"`

// base returns the folder with a root file system (rootfs.tar) of Debian's essential
// packages and those asked for.
func (m Maker) base(ctx context.Context, packages, leaveOut []string) (string, error) {
	packages = slices.Clone(packages)
	slices.Sort(packages)
	if err := m.HostPackages(ctx); err != nil {
		return "", err
	}
	key := cache.KeyOf("base", "2", debianSuite, strings.Join(packages, ","), strings.Join(leaveOut, ","), manFolder)
	return m.Cache.Entry(ctx, "base", key, func(dir string) error {
		step := "install Debian with " + strings.Join(packages, ", ")
		m.Say("==> %s: about 30 seconds the first time", step)
		defer m.progress(step)()
		log, err := m.Cache.LogFile("base")
		if err != nil {
			return err
		}
		defer log.Close()
		options := []string{"--essential-hook=" + manFolder}
		for _, pattern := range leaveOut {
			// Some packages need others only while they are installed.
			options = append(options, `--customize-hook=rm -rf "$1"`+pattern)
		}
		if err := run(ctx, log, mmdebstrap(ctx, "essential", packages, filepath.Join(dir, "rootfs.tar"), dir, options...)); err != nil {
			return &StepError{Step: step, Log: log.Name(), Err: err, Next: "see whether Debian " + debianSuite + " has packages of these names"}
		}
		return nil
	})
}
