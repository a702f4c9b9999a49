// Package house holds the tests of the house's rules, and no code: see docs/ARCHITECTURE.md.
package house
