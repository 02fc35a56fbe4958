package state

import (
	"slices"
	"strings"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for text, want := range map[string]string{
		"vm":                             "vm,kernel=6.1,cgroup=v2,containerd=2.4,runc=1.1,memory=3072",
		"vm,cgroup=v1,memory=2048":       "vm,kernel=6.1,cgroup=v1,containerd=2.4,runc=1.1,memory=2048",
		"vm,kernel=6.12,runc=1.4":        "vm,kernel=6.12,cgroup=v2,containerd=2.4,runc=1.4,memory=3072",
		"vm,psi=0":                       "vm,kernel=6.1,cgroup=v2,containerd=2.4,runc=1.1,memory=3072,psi=0",
		"vm,psi=1":                       "vm,kernel=6.1,cgroup=v2,containerd=2.4,runc=1.1,memory=3072",
		"vm,psi=no":                      "error: give 0 or 1",
		"native":                         "native,containerd=2.4,runc=1.4",
		"native,runc=1.1":                "native,containerd=2.4,runc=1.1",
		"native,containerd=2.2":          "native,containerd=2.2,runc=1.4",
		"vm,runc=1.4,containerd=2.2":     "vm,kernel=6.1,cgroup=v2,containerd=2.2,runc=1.4,memory=3072",
		"native,containerd=2.2.9":        "error: give 2.4 or 2.2",
		"":                               "error: give vm or native",
		"container":                      "error: give vm or native",
		"vm,cgroup=2":                    "error: give v1 or v2",
		"vm,kernel=5.10":                 "error: give 6.1 or 6.12",
		"vm,runc=1.0":                    "error: give 1.1 or 1.4",
		"vm,kernel=6.12,cgroup=v1":       "error: has no memory and cpuset of cgroup v1",
		"vm,memory=3":                    "error: at least 1024",
		"vm,size=3":                      "error: the options are",
		"native,kernel=6.12":             "error: a native node has this machine's",
		"vm,kernel=6.1,cgroup=v2,runc=9": "error: runc=9",
	} {
		got, err := ParseSpec(text)
		if part, bad := strings.CutPrefix(want, "error: "); bad {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, want an error with %q", text, err, part)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("%q is %s (%v), want %s", text, got, err, want)
		}
		if again, err := ParseSpec(got.String()); err != nil || again != got {
			t.Errorf("%s is not what it was: %s (%v)", got, again, err)
		}
	}
}

func TestMissingNodes(t *testing.T) {
	vm, _ := ParseSpec("vm")
	v1, _ := ParseSpec("vm,cgroup=v1")
	native, _ := ParseSpec("native")
	older, _ := ParseSpec("native,containerd=2.2")
	c := Cluster{}
	for _, s := range []Spec{vm, native, vm} {
		if _, err := c.Add(s, 1); err != nil {
			t.Fatal(err)
		}
	}
	var names, addresses []string
	for _, n := range c.Nodes {
		names, addresses = append(names, n.Name), append(addresses, n.Address)
	}
	if got := strings.Join(names, " "); got != "vm1 native1 vm2" {
		t.Errorf("the nodes are %s", got)
	}
	if got := strings.Join(addresses, " "); got != "10.0.2.15 10.0.2.16 10.0.2.17" {
		t.Errorf("their addresses are %s", got)
	}
	if got := c.Missing([]Spec{vm, vm, native}); len(got) != 0 {
		t.Errorf("missing %v, want nothing", got)
	}
	if got := c.Missing([]Spec{v1, vm, vm, vm, older}); !slices.Equal(got, []Spec{v1, vm, older}) {
		t.Errorf("missing %v, want %v, %v and %v", got, v1, vm, older)
	}
}
