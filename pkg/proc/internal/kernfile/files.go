package kernfile

// A File is one of the files that this process may open: none of them has ever
// been made to hang its reader. There are no others, because nobody else can
// make a File.
type File struct {
	name string
	// single says that the kernel produces the file in one piece (single_open,
	// and the files of control groups that hold one value), so that a read that
	// does not fill the buffer was the last. Others end only where a read returns
	// nothing.
	single bool
}

func (f File) String() string { return f.name }

// The files of a task, a thread or a process (proc(5)).
var (
	Status     = File{"status", true}
	Comm       = File{"comm", true}
	Schedstat  = File{"schedstat", true}
	Cgroup     = File{"cgroup", false}
	Children   = File{"children", false} // of threads
	Mountinfo  = File{"mountinfo", false}
	Mountstats = File{"mountstats", false}
	NetTCP     = File{"net/tcp", false}
	NetTCP6    = File{"net/tcp6", false}
)

// OfTasks returns all files of tasks.
func OfTasks() []File {
	return []File{Status, Comm, Schedstat, Cgroup, Children, Mountinfo, Mountstats, NetTCP, NetTCP6}
}

// FUSEWaiting is of a FUSE connection.
var FUSEWaiting = File{"waiting", false}

// The files of a block device (Documentation/block/stat.rst,
// Documentation/ABI/testing/sysfs-block-dm). The kernel answers them from memory and
// takes no lock that an I/O holds (part_stat_show, dm_attr_suspended_show,
// loop_attr_backing_file_show, loop_attr_autoclear_show, dev_show).
var (
	BlockStat   = File{"stat", true}
	DMSuspended = File{"dm/suspended", true}
	DMName      = File{"dm/name", true}
	DMUUID      = File{"dm/uuid", true}
	// MDState is of a software RAID (Documentation/admin-guide/md.rst), and is not read.
	MDState = File{"md/array_state", true}
	// LoopFile and LoopReleased are of a loop device.
	LoopFile     = File{"loop/backing_file", true}
	LoopReleased = File{"loop/autoclear", true}
	// BlockNumber is major:minor.
	BlockNumber = File{"dev", true}
)

// The files of a control group, of either version (Documentation/admin-guide/
// cgroup-v2.rst, cgroup-v1).
var (
	Tasks             = File{"tasks", false}
	CgroupThreads     = File{"cgroup.threads", false}
	CgroupProcs       = File{"cgroup.procs", false}
	CgroupControllers = File{"cgroup.controllers", true}
	CgroupEvents      = File{"cgroup.events", true}
	CgroupFreeze      = File{"cgroup.freeze", true}
	FreezerState      = File{"freezer.state", true}
	FreezerSelf       = File{"freezer.self_freezing", true}
	PIDsCurrent       = File{"pids.current", true}
	PIDsMax           = File{"pids.max", true}
	CPUStat           = File{"cpu.stat", true}
	CPUMax            = File{"cpu.max", true}
	CPUAcctUsage      = File{"cpuacct.usage", true}
	CPUCFSQuota       = File{"cpu.cfs_quota_us", true}
	CPUCFSPeriod      = File{"cpu.cfs_period_us", true}
	MemoryCurrent     = File{"memory.current", true}
	MemoryHigh        = File{"memory.high", true}
	MemoryMax         = File{"memory.max", true}
	MemoryEvents      = File{"memory.events", true}
	MemoryPressure    = File{"memory.pressure", true}
	MemoryUsage       = File{"memory.usage_in_bytes", true}
	MemoryLimit       = File{"memory.limit_in_bytes", true}
	MemoryFailcnt     = File{"memory.failcnt", true}
)
