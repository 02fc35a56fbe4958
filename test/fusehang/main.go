// Fusehang is a FUSE file system whose daemon takes some requests and does not
// answer them. It has one file for each operation that it leaves unanswered,
// with the operation's name; whatever else is done to a file works.
package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const usage = `fusehang [-ask] DIRECTORY  mounts itself there and serves until it is unmounted;
       with -ask, the kernel asks anew each time that somebody looks at the directory
files: read, write, getattr, flush, fsync: that operation is never answered
       slow: each write is answered after six seconds
the directory is listed one file after the other, each after six seconds`

// slowness is how long a write to the file slow takes, and each file of a list.
const slowness = 6 * time.Second

// files are the names of the files. The node ID of a file is its place here
// and 2, because 1 is the root.
var files = []string{"read", "write", "getattr", "flush", "fsync", "slow"}

func main() {
	args := os.Args[1:]
	ask := len(args) > 0 && args[0] == "-ask"
	if ask {
		args = args[1:]
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := serve(args[0], ask); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(dir string, ask bool) error {
	s, err := fuse.NewServer(fileSystem{fuse.NewDefaultRawFileSystem(), ask}, dir, &fuse.MountOptions{
		Name: "hang", FsName: "fusehang", AllowOther: true, DirectMountStrict: true, DisableReadDirPlus: true,
	})
	if err != nil {
		return fmt.Errorf("mount on %s: %w", dir, err)
	}
	s.Serve()
	return nil
}

// A fileSystem answers all operations but those that the files are named after.
// go-fuse serves each request in a goroutine of its own, so that one that is
// not answered holds up no other.
type fileSystem struct {
	fuse.RawFileSystem
	// ask reports whether the kernel may not keep what it knows of the directory.
	ask bool
}

func name(node uint64) string {
	if i := int(node) - 2; i >= 0 && i < len(files) {
		return files[i]
	}
	return ""
}

// answer does not return when the operation is the one that the file is named
// after, not even when the kernel tells that the asker has been interrupted.
func answer(node uint64, operation string) {
	if name(node) == operation {
		select {}
	}
}

func attr(node uint64) fuse.Attr {
	if node == fuse.FUSE_ROOT_ID {
		return fuse.Attr{Ino: node, Mode: syscall.S_IFDIR | 0o777, Nlink: 2}
	}
	return fuse.Attr{Ino: node, Mode: syscall.S_IFREG | 0o666, Size: 4096, Nlink: 1}
}

func (fileSystem) Lookup(_ <-chan struct{}, _ *fuse.InHeader, file string, out *fuse.EntryOut) fuse.Status {
	i := slices.Index(files, file)
	if i < 0 {
		return fuse.ENOENT
	}
	out.NodeId = uint64(i + 2)
	out.Attr = attr(out.NodeId)
	out.SetEntryTimeout(time.Hour)
	if file != "getattr" {
		out.SetAttrTimeout(time.Hour)
	}
	return fuse.OK
}

func (f fileSystem) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	answer(in.NodeId, "getattr")
	out.Attr = attr(in.NodeId)
	if in.NodeId != fuse.FUSE_ROOT_ID || !f.ask {
		out.SetTimeout(time.Hour)
	}
	return fuse.OK
}

// Open lets no page cache come between a call and the daemon.
func (fileSystem) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.Fh = in.NodeId
	out.OpenFlags = fuse.FOPEN_DIRECT_IO
	return fuse.OK
}

func (fileSystem) Read(_ <-chan struct{}, in *fuse.ReadIn, _ []byte) (fuse.ReadResult, fuse.Status) {
	answer(in.NodeId, "read")
	return fuse.ReadResultData(nil), fuse.OK
}

func (fileSystem) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	answer(in.NodeId, "write")
	if name(in.NodeId) == "slow" {
		time.Sleep(slowness)
	}
	return uint32(len(data)), fuse.OK
}

// ReadDir gives one name for each request, so that a list takes many: the kernel asks until it gets none. Who lists a
// directory may ask what each file is, so the file that never answers that is left out.
func (fileSystem) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	for i := in.Offset; i < uint64(len(files)); i++ {
		if files[i] != "getattr" {
			time.Sleep(slowness)
			out.AddDirEntry(fuse.DirEntry{Name: files[i], Mode: syscall.S_IFREG, Ino: i + 2, Off: i + 1})
			break
		}
	}
	return fuse.OK
}

// StatFs is what gVisor asks for before it starts a container, to learn of which kind the file system is.
func (fileSystem) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.NameLen = 4096, 255
	return fuse.OK
}

func (fileSystem) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	answer(in.NodeId, "flush")
	return fuse.OK
}

func (fileSystem) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	answer(in.NodeId, "fsync")
	return fuse.OK
}
