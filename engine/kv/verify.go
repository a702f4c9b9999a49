package kv

import "fmt"

// Verify reads every key and value, so that Pebble checks every block's checksum, and decodes what this package
// encodes. It returns how many keys there are. It is for tools: it reads everything.
func (d *DB) Verify() (keys int, err error) {
	err = d.Scan(nil, nil, func(k, v []byte) error {
		keys++
		switch k[0] {
		case spaceSide:
			index, err := SideIndex(k)
			if err != nil {
				return err
			}
			_, err = decodeSide(index, v)
			return err
		case spaceControlLog:
			_, err := ControlLogIndex(k)
			return err
		case spaceStable:
			_, err := GroupOf(k)
			return err
		case spaceControlStable, spaceMeta:
			return nil
		}
		return fmt.Errorf("%w: key %x in no known space", ErrCorrupt, k)
	})
	return keys, err
}
