package probe

import "testing"

func TestParseFDInfo(t *testing.T) {
	for _, tt := range []struct {
		text string
		want OpenFile
		ok   bool
	}{
		{"pos:\t0\nflags:\t02004000\nmnt_id:\t14\nino:\t33372\n", OpenFile{3, 0o2004000, 14}, true},
		{"pos:\t0\nflags:\t01\nmnt_id:\t14\n", OpenFile{3, 1, 14}, true}, // before 5.14
		{"pos:\t0\nflags:\t02004000\nmnt_id:\t15\nino:\t21\ninotify wd:2 ino:1587 sdev:1a mask:2\n", OpenFile{3, 0o2004000, 15}, true},
		{"pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t21\ntfd:       13 events: 8000201d data: 3f  pos:0 ino:822b sdev:8\n", OpenFile{3, 0o2000002, 15}, true},
		{"flags:\t01\nmnt_id:\t14\nino:\t7\nflags:\t02\nmnt_id:\t99\nino:\t8\n", OpenFile{3, 1, 14}, true},
		{"", OpenFile{}, false},
		{"flags:\t01\n", OpenFile{}, false},
		{"flags:\t8\nmnt_id:\t14\n", OpenFile{}, false},
		{"flags:\t1\nmnt_id:\tx\n", OpenFile{}, false},
	} {
		got, err := parseFDInfo(3, []byte(tt.text))
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %+v, %v", tt.text, got, err)
		}
	}
}

func TestOnlyPath(t *testing.T) {
	for flags, want := range map[int]bool{0o2100000: false, 0o12100000: true} {
		if got := (OpenFile{Flags: flags}).onlyPath(); got != want {
			t.Errorf("%o: %v", flags, got)
		}
	}
}
