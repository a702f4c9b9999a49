package stats

import "math/rand/v2"

// A Trial is one place in the order of a run.
type Trial struct {
	Block int
	Cell  int
	Seed  int64 // of this trial's arrivals and keys: equal for all cells of a block
}

// Order lists (block, cell) pairs: each block runs every cell once, shuffled from the seed. The first blocks of a longer run
// are the blocks of a shorter one.
func Order(seed int64, cells, repeats int) []Trial {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	var out []Trial
	for block := range repeats {
		blockSeed := rng.Int64()
		for _, cell := range rng.Perm(cells) {
			out = append(out, Trial{Block: block, Cell: cell, Seed: blockSeed})
		}
	}
	return out
}
