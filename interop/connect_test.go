//go:build interop

package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestConnect runs two workers of Kafka Connect in distributed mode, which make a group of protocol type "connect", with a
// file source and a file sink. The worker with the source is killed with SIGKILL, and another one comes: all lines arrive.
func TestConnect(t *testing.T) {
	const group, topic = "connect-cluster", "connect-lines"
	b := startBroker(t, t.TempDir(), groupSettings...)
	b.create(t, topic, 3)
	c := &connect{broker: b, dir: t.TempDir()}
	victim := c.startWorker(t, func(file string) *program {
		return startProcess(t, java("Worker", file))
	})
	victim.answers(t)
	c.checkGroup(t, group, 1)
	c.write(t, 500)
	victim.create(t, "source", "FileStreamSourceConnector", map[string]string{"file": c.path("in"), "topic": topic, "tasks.max": "1"})
	victim.running(t, "source", 1)

	hosted := func(file string) *program { return startHosted(t, "Worker "+file) }
	survivor := c.startWorker(t, hosted)
	survivor.answers(t)
	c.checkGroup(t, group, 2)
	survivor.create(t, "sink", "FileStreamSinkConnector", map[string]string{"file": c.path("out"), "topics": topic, "tasks.max": "2"})
	survivor.running(t, "source", 1)
	survivor.running(t, "sink", 2)
	c.arrive(t)
	if at := survivor.worker(t, "source"); at != victim.address {
		t.Fatalf("the source runs at %s, not where it was created, at %s", at, victim.address)
	}

	c.write(t, 500)
	victim.kill()
	c.write(t, 500)
	c.checkGroup(t, group, 1)
	survivor.running(t, "source", 1)
	survivor.running(t, "sink", 2)
	c.arrive(t)

	c.startWorker(t, hosted).answers(t)
	c.checkGroup(t, group, 2)
	survivor.running(t, "source", 1)
	survivor.running(t, "sink", 2)
	c.write(t, 500)
	c.arrive(t)
	eventually(t, "the sink has committed", func() bool {
		committed, err := b.admin.FetchOffsets(t.Context(), "connect-sink")
		sum := int64(0)
		committed.Each(func(o kadm.OffsetResponse) { sum += o.At })
		return err == nil && sum >= int64(c.lines)
	})
}

// A connect is a cluster of workers, and the files that its connectors read and write.
type connect struct {
	broker *broker
	dir    string
	lines  int // written to file "in"
}

func (c *connect) path(file string) string { return filepath.Join(c.dir, file) }

func (c *connect) write(t *testing.T, lines int) {
	t.Helper()
	f, err := os.OpenFile(c.path("in"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range lines {
		if _, err := fmt.Fprintf(f, "line-%d\n", c.lines); err != nil {
			t.Fatal(err)
		}
		c.lines++
	}
}

// arrive waits until every line is in the sink's file.
func (c *connect) arrive(t *testing.T) {
	t.Helper()
	missing := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s of %d lines is missing", missing, c.lines)
		}
	}()
	eventually(t, "all lines arrive", func() bool {
		content, err := os.ReadFile(c.path("out"))
		if err != nil {
			missing = err.Error()
			return false
		}
		arrived := map[string]bool{}
		for line := range strings.Lines(string(content)) {
			arrived[strings.TrimSuffix(line, "\n")] = true
		}
		for i := range c.lines {
			if missing = fmt.Sprint("line-", i); !arrived[missing] {
				return false
			}
		}
		return true
	})
}

// checkGroup waits until the workers' group has so many members.
func (c *connect) checkGroup(t *testing.T, group string, members int) {
	t.Helper()
	var d kadm.DescribedGroup
	defer func() {
		if t.Failed() {
			t.Logf("%+v", d)
		}
	}()
	eventually(t, fmt.Sprintf("the workers' group has %d members", members), func() bool {
		described, err := c.broker.admin.DescribeGroups(t.Context(), group)
		d = described[group]
		return err == nil && d.ProtocolType == "connect" && d.Protocol == "sessioned" && d.State == "Stable" && len(d.Members) == members
	})
}

// A worker is one of Kafka Connect.
type worker struct {
	address string // of its REST interface
	killed  bool
	*program
}

// startWorker starts one, by a func that is given the file of its settings.
func (c *connect) startWorker(t *testing.T, start func(file string) *program) *worker {
	t.Helper()
	w := &worker{address: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	file := filepath.Join(t.TempDir(), "worker.properties")
	properties := strings.Join([]string{
		"bootstrap.servers=" + c.broker.address, "group.id=connect-cluster", "listeners=http://" + w.address,
		"key.converter=org.apache.kafka.connect.storage.StringConverter", "value.converter=org.apache.kafka.connect.storage.StringConverter",
		"config.storage.topic=connect-configs", "config.storage.replication.factor=1",
		"offset.storage.topic=connect-offsets", "offset.storage.replication.factor=1", "offset.storage.partitions=3",
		"status.storage.topic=connect-status", "status.storage.replication.factor=1", "status.storage.partitions=3",
		"offset.flush.interval.ms=500", "scheduled.rebalance.max.delay.ms=500", "session.timeout.ms=10000", "heartbeat.interval.ms=300",
		"plugin.discovery=service_load",
	}, "\n")
	if err := os.WriteFile(file, []byte(properties+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.program = start(file)
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, w.out)
		ended <- err
	}()
	t.Cleanup(func() {
		w.in.Close()
		defer time.AfterFunc(patience, w.program.kill).Stop()
		if err := errors.Join(<-ended, w.end()); (err != nil && !w.killed) || t.Failed() {
			t.Errorf("worker %s: %v\n%s", w.address, err, tail(w.errs.String()))
		}
	})
	return w
}

// kill ends the worker, a process, as a fault would.
func (w *worker) kill() {
	w.killed = true
	w.program.kill()
}

// call does one request of the REST interface and decodes the answer into answer.
func (w *worker) call(method, path string, body, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, "http://"+w.address+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: patience}
	r, err := client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, r.Status, got)
	}
	return json.Unmarshal(got, answer)
}

// succeeds waits until a request does: workers refuse some while their group rebalances.
func (w *worker) succeeds(t *testing.T, method, path string, body, answer any) {
	t.Helper()
	var err error
	defer func() {
		if t.Failed() {
			t.Log(err)
		}
	}()
	eventually(t, method+" "+path, func() bool {
		err = w.call(method, path, body, answer)
		return err == nil
	})
}

func (w *worker) answers(t *testing.T) {
	t.Helper()
	var connectors []string
	w.succeeds(t, "GET", "/connectors", nil, &connectors)
}

func (w *worker) create(t *testing.T, name, class string, settings map[string]string) {
	t.Helper()
	settings["connector.class"] = "org.apache.kafka.connect.file." + class
	var created any
	w.succeeds(t, "PUT", "/connectors/"+name+"/config", settings, &created)
}

// A connectorStatus is what a worker says of a connector.
type connectorStatus struct {
	Connector struct{ State string }
	Tasks     []struct {
		State    string
		WorkerID string `json:"worker_id"`
	}
}

// running waits until a connector runs with so many tasks.
func (w *worker) running(t *testing.T, name string, tasks int) {
	t.Helper()
	var status connectorStatus
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("%+v %v", status, err)
		}
	}()
	eventually(t, fmt.Sprintf("%s runs with %d tasks", name, tasks), func() bool {
		status = connectorStatus{}
		if err = w.call("GET", "/connectors/"+name+"/status", nil, &status); err != nil {
			return false
		}
		for _, task := range status.Tasks {
			if task.State != "RUNNING" {
				return false
			}
		}
		return status.Connector.State == "RUNNING" && len(status.Tasks) == tasks
	})
}

// worker returns the address of the worker that runs the first task of a connector.
func (w *worker) worker(t *testing.T, name string) string {
	t.Helper()
	var status connectorStatus
	w.succeeds(t, "GET", "/connectors/"+name+"/status", nil, &status)
	return status.Tasks[0].WorkerID
}
