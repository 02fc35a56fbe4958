package scenario

import "github.com/nodeagent-io/nodeagent/test/bed"

// fuse lists the incidents of a FUSE daemon that does not answer, and innocent ones that
// look like them. They need no kernel of their own: a daemon of a node ends with the node,
// and by itself after an hour, and with it end all requests, also those that no signal ends.
func fuse() []bed.Scenario {
	read := fuseRead()
	read.Everywhere = true
	return []bed.Scenario{
		read, fuseWrite(), fuseGetattr(), fuseFsync(), fuseClose(), fuseZombieLeader(), fuseStopped(), exitFlush(), slowIO(),
	}
}

// mountFUSE is a step that has test/fusehang serve a scenario's directory.
func mountFUSE(name string) bed.Step {
	return inTurn(bed.NodeTool("fusehang"), bed.OnNode(unmountFUSE(name)+"\nmkdir -p "+directory(name)+"\n"+serveFUSE("", directory(name), daemon(name))))
}

// daemon returns the file with the PID of a scenario's FUSE daemon.
func daemon(name string) string { return "/run/scenario-" + name + ".daemon" }

// unmountFUSE returns a script that ends it.
func unmountFUSE(name string) string { return abortFUSE(directory(name), daemon(name)) }

// serveFUSE returns a script that has test/fusehang, which is on the node, serve a directory, for an hour at
// most, and waits for the mount. The daemon's PID is in the file.
func serveFUSE(flags, dir, pid string) string {
	return `setsid timeout -s KILL 1h sh -c 'echo $$ >` + pid + `; exec /usr/local/bin/fusehang ` + flags + ` "$0"' ` + dir + ` </dev/null >/dev/null 2>&1 &
for i in $(seq 60); do ! grep -q " "` + dir + `" .* fuse.hang " /proc/self/mountinfo || break; sleep 0.5; done
[ $i != 60 ]
`
}

// abortFUSE returns a script that aborts the connection of a mount, which frees everything that waits for
// it, and removes the mount and its daemon.
func abortFUSE(dir, pid string) string {
	return `connection=$(awk -v dir=` + dir + ` '$5 == dir {sub(".*:", "", $3); print $3}' /proc/self/mountinfo)
[ -z "$connection" ] || echo 1 >/sys/fs/fuse/connections/$connection/abort
! grep -q " "` + dir + `" " /proc/self/mountinfo || umount -l ` + dir + `
end KILL ` + pid
}

// onFUSE is an incident of a program that works on a file of test/fusehang: the
// daemon does not answer the operation that the file is named after.
func onFUSE(name, story, program, file string) bed.Scenario {
	return bed.Scenario{
		Name:  name,
		Story: story,
		Fault: bed.Fault{
			Pod:     onDisk(name, 3, program, "/data/"+file),
			Prepare: mountFUSE(name),
			Proof:   "some D 100",
			Heal:    bed.OnNode(unmountFUSE(name)),
		},
		Want: bed.Want{
			Cause:  "UninterruptibleSleep",
			Family: "FUSE",
			Says:   []string{"Seen: request_wait_answer", "fuse.hang", "/data", "Seen: " + directory(name), "Fix: /sys/fs/fuse/connections/"},
		},
	}
}

func fuseRead() bed.Scenario {
	return onFUSE("fuse-read", "a FUSE daemon does not answer a read", "read", "read")
}

// fuseWrite is healed by the daemon's death, which ends all requests too.
func fuseWrite() bed.Scenario {
	const name = "fuse-write"
	s := onFUSE(name, "a FUSE daemon does not answer a write", "write", "write")
	s.Heal = bed.OnNode("end KILL " + daemon(name))
	return s
}

func fuseGetattr() bed.Scenario {
	return onFUSE("fuse-getattr", "a FUSE daemon does not tell a file's size", "stat", "getattr")
}

func fuseFsync() bed.Scenario {
	return onFUSE("fuse-fsync", "a FUSE daemon does not answer an fsync", "sync", "fsync")
}

// fuseClose is found by the connection's requests: a close has no descriptor any
// more.
func fuseClose() bed.Scenario {
	return onFUSE("fuse-close", "a FUSE daemon does not answer when a file is closed", "close", "flush")
}

func fuseZombieLeader() bed.Scenario {
	s := onFUSE("fuse-zombie-leader", "the first thread has died, another one waits for a FUSE daemon", "write-in-thread", "write")
	s.Proof = behindZombie + s.Proof + " && behind_zombie D"
	s.Cause = "ThreadStuckBehindZombieLeader"
	s.Says = append(s.Says, "looks like a zombie")
	return s
}

// exiting succeeds when a thread of the pod sleeps inside do_exit in the
// function.
const exiting = `exiting() {
  for t in $(tasks); do
    grep -q do_exit /proc/$t/stack && grep -q $1 /proc/$t/stack && grep -q "^State:.[SD]" /proc/$t/status && return 0
  done
  return 1
}
`

func exitFlush() bed.Scenario {
	s := onFUSE("exit-fuse-flush", "a process ends, and a FUSE daemon does not answer the close that is part of it", "hold", "flush")
	s.Proof = exiting + "exiting fuse_flush"
	s.Cause = "StuckInExit"
	s.Says = append(s.Says, "victim")
	return s
}

// fuseStopped is a daemon that does not even take the requests. A read that it has not
// taken ends with SIGKILL, but not the close that follows. That it has taken none is sure
// when the program is stopped while the daemon is being stopped.
func fuseStopped() bed.Scenario {
	const name = "fuse-stopped"
	s := onFUSE(name, "a FUSE daemon has been stopped", "read", "slow")
	s.Break = bed.OnNode(`stopped() { for i in $(seq 100); do ! grep -L "^State:.T" /proc/$1/task/*/status | grep -q . && return; sleep 0.1; done; return 1; }
victim=$(awk '/^Name/{c=$2} /^Tgid/ && c=="victim"{print $2; exit}' $(statuses))
kill -STOP $victim
stopped $victim
end STOP ` + daemon(name) + `
stopped $(cat ` + daemon(name) + `)
kill -CONT $victim`)
	s.Proof = exiting + "exiting fuse_flush"
	s.Cause = "StuckInExit"
	s.Says = append(s.Says, "victim")
	s.Heal = bed.OnNode("end CONT " + daemon(name))
	return s
}

// slowIO is innocent: each write takes six seconds, but it ends.
func slowIO() bed.Scenario {
	const name = "slow-io"
	return bed.Scenario{
		Name:  name,
		Story: "innocent: a slow FUSE daemon lets a killed program wait, but not for ever",
		Fault: bed.Fault{
			Pod:     onDisk(name, 3, "finish", "/data/slow"),
			Prepare: mountFUSE(name),
			Heal:    nil,
		},
	}
}
