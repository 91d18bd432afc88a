package balancer

// union divides numbers into sets that grow together (union-find). Sets are
// known by one of their members, which changes as they grow.
type union []int

func newUnion(n int) union {
	u := make(union, n)
	for j := range u {
		u[j] = j
	}
	return u
}

// find is the member that the set of j is known by.
func (u union) find(j int) int {
	for u[j] != j {
		u[j] = u[u[j]]
		j = u[j]
	}
	return j
}

// join puts numbers into one set.
func (u union) join(members []int) {
	for _, j := range members {
		u[u.find(j)] = u.find(members[0])
	}
}
