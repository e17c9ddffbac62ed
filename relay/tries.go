package relay

import "github.com/hashicorp/golang-lru/v2/simplelru"

// triesKept bounds the memory of failing rows, at about a hundred bytes each. A row
// that falls out of it only lives longer: its next failure counts as its first.
const triesKept = 16384

// tries remembers, for rows that failed, how many messages the destination had
// accepted when they were tried. It is empty after a restart.
type tries struct {
	lru *simplelru.LRU[rowKey, try]
}

type rowKey struct{ table, id string }

// try holds the count of acceptances before a row's first and last try.
type try struct{ first, last uint64 }

func newTries() tries {
	lru, err := simplelru.NewLRU[rowKey, try](triesKept, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return tries{lru: lru}
}

// failed records a try that began at mark, and says what was accepted meanwhile.
func (t tries) failed(k rowKey, mark, accepted uint64) evidence {
	seen, ok := t.lru.Get(k)
	if !ok {
		seen = try{first: mark, last: mark}
	}
	t.lru.Add(k, try{first: seen.first, last: mark})
	return evidence{sinceFirst: accepted > seen.first, sinceLast: accepted > seen.last}
}

// forget is for a row that is settled.
func (t tries) forget(k rowKey) { t.lru.Remove(k) }
