package fact

// Sideshow reports whether a program of that name serves nobody: a script runs it beside the one
// that does, or in a loop.
func Sideshow(comm string) bool { return sideshows[comm] }
