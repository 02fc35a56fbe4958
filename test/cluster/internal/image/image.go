// Package image writes container images as archives that `ctr images import`
// reads, with no registry and no daemon.
package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is a file or folder of this machine and where it goes in the image.
type File struct{ Source, Destination string }

// ParseFile takes SRC:DST apart.
func ParseFile(arg string) (File, error) {
	src, dst, ok := strings.Cut(arg, ":")
	if !ok || src == "" || !path.IsAbs(dst) {
		return File{}, fmt.Errorf("%q: give SRC:DST, a path here and an absolute path in the image", arg)
	}
	return File{Source: src, Destination: path.Clean(dst)}, nil
}

// Spec is all that an image is made of.
type Spec struct {
	Name       string // with tag
	Base       string // root file system as a tar file; may be empty
	Files      []File
	Entrypoint []string
	Cmd        []string
	StopSignal string // as containerd reads it: SIGQUIT, QUIT, 3; "" means SIGTERM
}

// FullName completes a name as Kubernetes does: busybox:test is docker.io/library/busybox:test.
func FullName(short string) (string, error) {
	tag, err := name.NewTag(short, name.WithDefaultTag(""))
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", short, err)
	}
	if tag.TagStr() == "" {
		return "", fmt.Errorf("image name %q: give a tag, such as %s:test", short, short)
	}
	registry := tag.RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	return registry + "/" + tag.RepositoryStr() + ":" + tag.TagStr(), nil
}

// Write makes the archive. It is finished under another name first. The same inputs
// give the same archive: no file in it has a time or an owner of this machine.
func Write(to string, spec Spec) error {
	full, err := FullName(spec.Name)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(full)
	if err != nil {
		return err
	}
	img := empty.Image
	if spec.Base != "" {
		if img, err = appendLayer(img, spec.Base); err != nil {
			return err
		}
	}
	if len(spec.Files) > 0 {
		layer := to + ".layer"
		defer os.Remove(layer)
		if err := writeLayer(layer, spec.Files); err != nil {
			return err
		}
		if img, err = appendLayer(img, layer); err != nil {
			return err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	// containerd passes over an image that is for no platform.
	config.OS, config.Architecture = "linux", "amd64"
	config.Created = v1.Time{Time: time.Unix(0, 0)}
	config.Config = v1.Config{
		Entrypoint: spec.Entrypoint,
		Cmd:        spec.Cmd,
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		WorkingDir: "/",
		StopSignal: spec.StopSignal,
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	temp := to + ".new"
	defer os.Remove(temp)
	if err := tarball.WriteToFile(temp, tag, img); err != nil {
		return fmt.Errorf("write image %s: %w", full, err)
	}
	return os.Rename(temp, to)
}

func appendLayer(img v1.Image, file string) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("read layer: %w", err)
	}
	// The layer is read once more when the image is written, so the file stays until then.
	return mutate.AppendLayers(img, layer)
}

func writeLayer(to string, files []File) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	made := map[string]bool{"/": true}
	for _, f := range files {
		if err := addTree(w, f, made); err != nil {
			return fmt.Errorf("add %s to the image: %w", f.Source, err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}

func addTree(w *tar.Writer, f File, made map[string]bool) error {
	source, err := filepath.EvalSymlinks(f.Source)
	if err != nil {
		return err
	}
	return filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		to := path.Join(f.Destination, filepath.ToSlash(rel))
		for _, dir := range parents(to) {
			if made[dir] {
				continue
			}
			made[dir] = true
			h := &tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
			if err := w.WriteHeader(h); err != nil {
				return err
			}
		}
		if to == "/" || (d.IsDir() && made[to]) {
			return nil
		}
		return addFile(w, p, to, made)
	})
}

func addFile(w *tar.Writer, from, to string, made map[string]bool) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	var link string
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(from); err != nil {
			return err
		}
	}
	if !info.Mode().IsRegular() && !info.IsDir() && link == "" {
		return errors.New("it is no file, folder or symbolic link")
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = to[1:]
	if info.IsDir() {
		h.Name += "/"
	}
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	h.ModTime, h.AccessTime, h.ChangeTime = time.Unix(0, 0), time.Time{}, time.Time{}
	h.Format = tar.FormatPAX
	made[to] = true
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}

// parents lists the folders above a path, the outermost first.
func parents(p string) []string {
	var all []string
	for d := path.Dir(p); d != "/"; d = path.Dir(d) {
		all = append(all, d)
	}
	sort.Strings(all)
	return all
}
