package fleet

// Refusal is why a table or a report of another gateway is not taken. Closed.
type Refusal uint8

const (
	Accepted       Refusal = iota
	Oversized              // more bytes than such a message may have
	Truncated              // too short for its envelope
	UnknownVersion         // of a release that this one cannot read
	WrongKey               // signed with the key of another fleet
	Forged                 // the signature is not that of what it signs
	WrongSender            // sent where only another gateway may send
	Replayed               // that number was taken before
	Older                  // of an epoch that is over
	TwoLeaders             // of another gateway than the one that this epoch is of
	NameTaken              // another process reports under that name
	TooMany                // more gateways than a fleet may have
	Unreadable             // rightly signed, and its content is none
	Gap                    // it changes a table that is not here
	refusals
)

func (r Refusal) String() string {
	return [...]string{"accepted", "oversized", "truncated", "unknown_version", "wrong_key", "forged", "wrong_sender", "replayed",
		"older", "two_leaders", "name_taken", "too_many", "unreadable", "gap"}[r]
}
