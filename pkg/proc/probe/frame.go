package probe

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxFrame bounds a message between a Prober and its helper, in bytes.
const maxFrame = 1 << 20

// A request asks the helper to look at one task.
type request struct {
	What What   `json:"what"`
	Proc string `json:"proc"` // where /proc is mounted
	PID  int    `json:"pid"`
	TID  int    `json:"tid"`
	// Owner is whose the task is: the UID of a pod, or a word. It stays here.
	Owner string `json:"-"`
	// Dir is the kubelet's directory as the host names it, and Pod the UID of the pod
	// whose volumes are asked for, where no task is. Of a disk it is the directory, "" for that of
	// containerd's records.
	Dir string `json:"dir,omitempty"`
	Pod string `json:"pod,omitempty"`
	// File is a name in Dir.
	File string `json:"file,omitempty"`
	// Places are directories of which the kubelet's is looked for.
	Places []string `json:"places,omitempty"`
	// Devices are the names of the block devices of CSI drivers that the pod has mounted.
	Devices []string `json:"devices,omitempty"`
	// Pipes are the inodes of the pipes that a writer is looked for of.
	Pipes []uint64 `json:"pipes,omitempty"`
}

// A What is what a helper can be asked for.
type What string

// What a helper can be asked for.
const (
	Task    What = "task"    // everything about a task
	Wchan   What = "wchan"   // only what it sleeps in
	Shim    What = "shim"    // the -id of a shim's command line
	PIDNS   What = "pidns"   // its PID namespace
	Pipes   What = "pipes"   // the pipes that a shim reads from
	Ends    What = "ends"    // the pipes that it has an end of, whether to read or to write
	Streams What = "streams" // the pipes that its standard streams write to
	Holds   What = "holds"   // the mounts that it uses, when it is in the host's mount namespace, else which one it is in
	Uses    What = "uses"    // the mounts that it uses, wherever it is
	Blocks  What = "blocks"  // the loop devices that it has open, when it is not in the host's mount namespace
	Plugin  What = "plugin"  // what a CNI plugin was asked for, in its environment
	Outputs What = "outputs" // the containers whose output a shim has open, and the pipes that it reads
	Sockets What = "sockets" // the sockets that it has open
	Limits  What = "limits"  // how many files it may have open, and how many it has
	Content What = "content" // how many files of its content store a containerd has open
	disk    What = "disk"    // how full the file system of containerd's records, or of another directory, is
	Command What = "command" // what a runtime such as runc was told to do, in its arguments
	writes  What = "writes"  // which of some pipes it can write to
	Scanner What = "scanner" // whether it is asked before others open, read or execute a file
	volumes What = "volumes" // the directories of a pod's volumes
	pods    What = "pods"    // the directories of all pods
	claims  What = "claims"  // the resource claims that the kubelet has had prepared

	places      What = "places"      // which of some directories is the kubelet's
	certificate What = "certificate" // the fingerprint of the kubelet's certificate

	emptyDirs What = "emptydirs" // the emptyDir volumes of which the kubelet has a directory open
)

// A reply is one message of the helper. It says what it has read so far, and
// either which file it opens next or that it is done, so that after a hang the
// asker knows the file and keeps the rest.
type reply struct {
	Opening string `json:"opening,omitempty"`
	Done    bool   `json:"done,omitempty"`
	Seen    Seen   `json:"seen"`
}

// A Seen is what a helper has read of one task. Text is bytes as the kernel
// gave them.
type Seen struct {
	Gone     bool `json:"gone,omitempty"`     // there is no such task any more
	TooLarge bool `json:"tooLarge,omitempty"` // what was read of it finds no room in an answer
	// Work is what the answer has cost, in KiB that the kernel has written; a link counts as the sixteenth part of one.
	Work int `json:"work,omitempty"`
	// Was and Is are the task as its status file had it before the other files were read, and after them. All are
	// of one and the same task.
	Was      *Moment `json:"was,omitempty"`
	Is       *Moment `json:"is,omitempty"`
	Start    uint64  `json:"start,omitempty"`
	Group    int     `json:"group,omitempty"`
	Terminal bool    `json:"terminal,omitempty"`
	Flags    uint64  `json:"flags,omitempty"`
	Reaped   uint64  `json:"reaped,omitempty"`
	Exe      string  `json:"exe,omitempty"` // base name

	Wchan string   `json:"wchan,omitempty"`
	Stack []string `json:"stack,omitempty"`
	Call  Call     `json:"call,omitzero"`
	// Paths are the absolute paths of the call, as the task sees them. They
	// never leave this package.
	Paths []CallPath `json:"paths,omitempty"`
	Maps  []Mapping  `json:"maps,omitempty"`
	// Files are those that the call works on by their descriptors.
	Files []OpenFile `json:"files,omitempty"`

	ShimID string `json:"shimID,omitempty"`
	CNI    CNI    `json:"cni,omitzero"`
	PIDNS  uint64 `json:"pidns,omitempty"`

	Command CommandLine `json:"command,omitzero"`
	// Pipes are the inodes of pipes, Inodes those of sockets.
	Pipes  []uint64 `json:"pipes,omitempty"`
	Inodes []uint64 `json:"inodes,omitempty"`
	// MaxOpen is how many files the process may have open (the soft limit RLIMIT_NOFILE), 0 for any
	// number, and Open how many it has, which is not read then: no more of them than numbers below the
	// limit.
	MaxOpen int64 `json:"maxOpen,omitempty"`
	Open    int64 `json:"open,omitempty"`
	Store   Store `json:"store,omitzero"`
	// Ingests are how many downloads a containerd has open, and Blobs how many parts of images.
	Ingests int `json:"ingests,omitempty"`
	Blobs   int `json:"blobs,omitempty"`
	// Scans reports whether the task is asked before others open, read or execute a file (fanotify).
	Scans bool `json:"scans,omitempty"`
	// Outputs are the IDs of containers, and Executed those of containers in which a
	// process was executed of which the shim has the output open.
	Outputs  []string `json:"outputs,omitempty"`
	Executed []string `json:"executed,omitempty"`

	// InHost reports whether the task is in the mount namespace of the first process.
	// Mounts are the IDs of the mounts that its open files are on; Dirs the texts of its
	// links cwd, root and exe, by these names; Loops what it has open that is called as
	// loop devices are. They never leave the agent. Namespace is the text of the link of another
	// mount namespace, and Blocks the numbers of loop devices, as in 7:3.
	InHost bool              `json:"inHost,omitempty"`
	Mounts []int             `json:"mounts,omitempty"`
	Dirs   map[string]string `json:"dirs,omitempty"`
	Loops  []OpenLoop        `json:"loops,omitempty"`

	Namespace string   `json:"namespace,omitempty"`
	Blocks    []string `json:"blocks,omitempty"`

	// Volumes are the directories of a pod's volumes, Sockets the names in the
	// kubelet's plugins_registry, Pods those of the directories of all pods, and Found
	// reports whether the pod has a directory.
	Volumes []volumeDirs `json:"volumes,omitempty"`
	Sockets []string     `json:"sockets,omitempty"`
	// Place is the kubelet's directory, with no link in its name.
	Place string `json:"place,omitempty"`
	// Certificate is the SHA-256 of a certificate.
	Certificate []byte   `json:"certificate,omitempty"`
	Pods        []string `json:"pods,omitempty"`
	Found       bool     `json:"found,omitempty"`
	// Claims are the resource claims that the kubelet has had prepared.
	Claims []ClaimState `json:"claims,omitempty"`
	// EmptyDirs are the volumes of which the kubelet has a directory open.
	EmptyDirs []OpenEmptyDir `json:"emptyDirs,omitempty"`

	// Beyond says what of the task is more than is read. Denied names the files that may not be read; Errors tells of those that
	// could not be read for a reason other than that the task is gone.
	Beyond string   `json:"beyond,omitempty"`
	Denied []string `json:"denied,omitempty"`
	Errors []string `json:"errors,omitempty"`
}

// A Moment is what tells a task from another one that had its number before, and whether it has run.
type Moment struct {
	Comm     string `json:"comm"`
	PID      int    `json:"pid"`
	PPID     int    `json:"ppid"`
	NSpid    []int  `json:"nspid,omitempty"`
	Switches uint64 `json:"switches"`
}

// A CommandLine is what a program was told to do if it is a runtime such as runc. No other
// arguments leave the helper.
type CommandLine struct {
	// Shim reports whether these are still a shim's own arguments: its child has not
	// executed a program yet.
	Shim bool `json:"shim,omitempty"`
	// Is reports whether it has the arguments that a shim starts a runtime with.
	Is bool `json:"is,omitempty"`
	// Runtime is the program's name and Command what it was told to do, "" where that is not
	// among those that are known; ContainerID the container that it is about.
	Runtime     string `json:"runtime,omitempty"`
	Command     string `json:"command,omitempty"`
	ContainerID string `json:"containerID,omitempty"`
}

// A CNI is what a CNI plugin was asked for (CNI specification, section 2): the
// variables CNI_COMMAND and CNI_CONTAINERID of its environment, and the pod's UID, which
// containerd puts into CNI_ARGS (toCNILabels, internal/cri/server/sandbox_run.go). Nothing
// else leaves the helper.
type CNI struct {
	Command     string `json:"command,omitempty"`
	ContainerID string `json:"containerID,omitempty"`
	PodUID      string `json:"podUID,omitempty"`
}

// A CallPath is a path argument, and how it was completed to an absolute one. MountID is the
// mount of the open directory that it is relative to; 0 for none.
type CallPath struct {
	Path    []byte `json:"path"`
	Via     string `json:"via"`
	MountID int    `json:"mountID,omitempty"`
}

var errTooLarge = errors.New("the answer is too large")

func writeFrame(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("%w: %d bytes", errTooLarge, len(b))
	}
	frame := make([]byte, 4, 4+len(b))
	binary.BigEndian.PutUint32(frame, uint32(len(b)))
	_, err = w.Write(append(frame, b...))
	return err
}

func readFrame(r io.Reader, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return fmt.Errorf("a message of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
