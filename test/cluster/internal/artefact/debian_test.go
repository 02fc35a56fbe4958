package artefact

import "testing"

func TestParseIndexTargets(t *testing.T) {
	const site = "http://mirror.example/debian/"
	signed := "deb [signed-by=" + debianKeyring + "] "
	for name, test := range map[string]struct{ in, want string }{
		"this Debian": {
			"Debian|bookworm|" + site + "|bookworm|main\nDebian|bookworm|" + site + "|bookworm|contrib\nDebian|bookworm-security|" + site + "|bookworm-security|main\nOther|bookworm|" + site + "|bookworm|main\n",
			signed + site + " bookworm main\n" + signed + site + " bookworm-security main\n",
		},
		"another Debian":      {"Debian|trixie|" + site + "|trixie|main\n", ""},
		"updates alone":       {"Debian|bookworm-updates|" + site + "|bookworm-updates|main\n", ""},
		"no security updates": {"Debian|bookworm|" + site + "|bookworm|main\n", ""},
		"nothing":             {"", ""},
	} {
		if got := parseIndexTargets(test.in); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestBinariesKey(t *testing.T) {
	a, b := kubernetesBinaries(), kubernetesBinaries()
	if a.key("go1.26") != b.key("go1.26") {
		t.Error("the same programs have two keys")
	}
	if a.key("go1.26") == a.key("go1.27") {
		t.Error("another compiler, the same key")
	}
	b.ldflags += " -X other"
	if a.key("go1.26") == b.key("go1.26") {
		t.Error("other flags, the same key")
	}
}
