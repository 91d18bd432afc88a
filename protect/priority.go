package protect

import "fmt"

// Priority is how much a request matters when not all can be served. A lower
// value matters more.
type Priority uint8

const (
	Critical Priority = iota
	Standard
	Sheddable
)

var priorityNames = [...]string{"critical", "standard", "sheddable"}

func (p Priority) String() string { return priorityNames[p] }

// ParsePriority reads a priority by its name.
func ParsePriority(name string) (Priority, error) {
	for p, n := range priorityNames {
		if n == name {
			return Priority(p), nil
		}
	}
	return 0, fmt.Errorf("want critical, standard or sheddable")
}

// Under is p where it does not matter more than the ceiling, else the ceiling.
func (p Priority) Under(ceiling Priority) Priority { return max(p, ceiling) }
