package diagnose

// A Who is the person who can act on a cause. It is a label of metrics and alerts, by which a page is routed.
type Who string

// Who acts: the owner of the pod's program and manifest; who has root on the node; who runs the volumes' servers, disks and CSI
// drivers; who runs the CNI plugin and the network; the owner of the controller that has set a finalizer; and the owner of a webhook
// or an admission policy.
const (
	ByApp        Who = "app"
	ByNode       Who = "node"
	ByStorage    Who = "storage"
	ByNetwork    Who = "network"
	ByController Who = "controller"
	ByPolicy     Who = "policy"
)

// persons are what they are called in texts.
var persons = map[Who]string{
	ByApp: "app owner", ByNode: "node admin", ByStorage: "storage team", ByNetwork: "network team", ByController: "controller owner",
	ByPolicy: "policy owner",
}

// acts says who acts, and whether the app has caused it, as in "node admin (not the app); ends by itself".
func acts(who Who, notApp, ends bool) string {
	text := persons[who]
	if text == "" {
		return ""
	}
	if notApp {
		text += " (not the app)"
	}
	if ends {
		text += "; ends by itself"
	}
	return text
}

// Acts says briefly who acts. A slow stop has its end in its message.
func (f *Finding) Acts() string { return acts(f.Who, f.NotApp, f.Ends && !f.Quiet) }

// SaidWho reports whether a text is one that SaysWho gives.
func SaidWho(text string) bool {
	for who := range persons {
		for _, is := range [][2]bool{{}, {true, false}, {false, true}, {true, true}} {
			if f := (Finding{Who: who, NotApp: is[0], Ends: is[1]}); f.SaysWho() == text {
				return true
			}
		}
	}
	return false
}

// SaysWho says in sentences who acts, whether the app has caused it, and whether it ends by itself.
func (f *Finding) SaysWho() string {
	if persons[f.Who] == "" {
		return ""
	}
	text := "the " + persons[f.Who] + "."
	switch {
	case f.Who == ByApp:
	case f.NotApp:
		text += " The app has not caused it."
	default:
		text += " Whether the app has caused it is not known."
	}
	if f.Ends {
		return text + " It ends by itself."
	}
	return text + " It does not end by itself."
}
