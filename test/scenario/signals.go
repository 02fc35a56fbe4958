package scenario

// signals lists the incidents in which the stop signal does not end a container.
func signals() []Scenario {
	return []Scenario{}
}
