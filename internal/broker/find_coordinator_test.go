package broker

import "testing"

func TestIsShareKey(t *testing.T) {
	const id = "AAAAAAAAAAAAAAAAAAAAAQ"
	for key, want := range map[string]bool{
		"g:" + id + ":0": true, "a:group:" + id + ":17": true, "": false, "g": false, "g:" + id: false,
		"g:topic:0": false, "g:" + id + ":first": false, "g:" + id + ":": false,
	} {
		if got := isShareKey(key); got != want {
			t.Errorf("%q: got %v, want %v", key, got, want)
		}
	}
}
