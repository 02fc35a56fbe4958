package scenario

// poweringOff lists pods that are deleted while their node shuts down.
func poweringOff() []Scenario {
	return []Scenario{shutdownHeld(), shutdownHastens()}
}

// powerOff is a shell script that has systemd-logind begin to power off a node whose kubelet ends its
// pods before that. Another program holds the power-off up, for as long as logind waits, which
// is as long as the kubelet asks it to.
const powerOff = configs + `keep
printf 'shutdownGracePeriod: 30m\nshutdownGracePeriodCriticalPods: 1m\n' >>` + kubeletConfig + `
restart
for i in $(seq 120); do systemd-inhibit --list --no-pager | grep -q '^kubelet .* shutdown ' && break; sleep 1; done
setsid systemd-inhibit --what=shutdown --who=scenario --why=test --mode=delay sh -c 'echo $$ >/run/scenario-inhibitor.pid; exec sleep 3600' </dev/null >/dev/null 2>&1 &
for i in $(seq 60); do systemd-inhibit --list --no-pager | grep -q '^scenario ' && break; sleep 1; done
systemctl poweroff
`

// stayOn takes that back: logind, started anew, forgets what it was to do, and the kubelet that the
// node shuts down.
const stayOn = configs + `systemctl restart systemd-logind
end KILL /run/scenario-inhibitor.pid
rm -f /etc/systemd/logind.conf.d/99-kubelet.conf
restore`

// shutsDown is a step that begins to power off the node, and waits until the kubelet says so.
var shutsDown = inTurn(onNode(powerOff), notReady)

// shutdownHeld is a pod that cannot be stopped and holds up the shutdown of its node.
func shutdownHeld() Scenario {
	s := shimStopped()
	s.Name = "node-shuts-down"
	s.Story = "the node shuts down, and the shim of a pod that is deleted is stopped and answers nobody"
	s.Needs = []Need{Systemd}
	s.Break = inTurn(s.Break, shutsDown)
	s.Says = append(s.Says, "The kubelet says that the node is shutting down")
	goOn := s.Heal
	s.Heal = inTurn(onNode(stayOn), heard, goOn)
	return s
}

// shutdownHastens is innocent: the kubelet has sent the stop signal before the deletion, and SIGKILL
// comes before the deadline.
func shutdownHastens() Scenario {
	return Scenario{
		Name:  "node-shuts-down-early",
		Story: "innocent: the node shuts down, and the kubelet kills a pod, which ignores its stop signal and is deleted meanwhile, before its deadline",
		Needs: []Need{Systemd},
		Pod:   sleeper(90),
		Break: shutsDown,
		Heal:  inTurn(gone, onNode(stayOn), heard),
	}
}
