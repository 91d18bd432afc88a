// Package report is what comes out of measurements: one form of results for
// `penstock bench` and `penstock simulate`, what they say when runs are compared
// in pairs, and the pages that show it.
//
// A Run is one thing that was compared (a policy, a target) in one scenario with
// one seed. Runs of the same scenario and seed had the same requests at the same
// instants, so their difference is a pair: what chance did to both cancels, and
// the spread of the differences over seeds says how sure the result is.
package report
