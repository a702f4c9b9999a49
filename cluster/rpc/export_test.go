package rpc

// HelloOfVersion is the opening of a plain stream by a node of another version.
func HelloOfVersion(version uint32, from, to NodeID) []byte {
	return hello{version: version, from: from, to: to}.encode()
}
