package uuid

import "testing"

func TestText(t *testing.T) {
	if got, want := Metadata.String(), "AAAAAAAAAAAAAAAAAAAAAQ"; got != want {
		t.Errorf("Metadata prints %s, Kafka prints %s", got, want)
	}
	u := Random()
	back, err := Parse(u.String())
	if err != nil || back != u {
		t.Errorf("Parse(%s) = %s, %v", u, back, err)
	}
	for _, bad := range []string{"", "AAAA", "AAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAAAQAA"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) accepted it", bad)
		}
	}
}

func TestReserved(t *testing.T) {
	for _, u := range []UUID{Zero, Metadata, LostDir, {15: 99}} {
		if !u.IsReserved() {
			t.Errorf("%s is not reserved", u)
		}
	}
	if (UUID{15: 100}).IsReserved() {
		t.Error("…100 is reserved")
	}
}
