package controller

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
)

const minISRKey = "min.insync.replicas"

// A resourceKey names a resource of a request about configurations.
type resourceKey struct {
	kind kmsg.ConfigResourceType
	name string
}

// alterConfigs replaces all that is set on each resource. Source: ConfigurationControlManager.legacyAlterConfigs.
func (t *turn) alterConfigs(req *kmsg.AlterConfigsRequest) answer {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	resp.Resources = []kmsg.AlterConfigsResponseResource{}
	dry := t.dryIf(req.ValidateOnly)
	times := map[resourceKey]int{}
	for i := range req.Resources {
		times[resourceKey{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		key := resourceKey{r.ResourceType, r.ResourceName}
		err := onlyOnce(times[key])
		if err == nil {
			err = dry.replaceConfig(key, r.Configs)
		}
		rr := kmsg.NewAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		rr.ErrorCode, rr.ErrorMessage = codeOf(err)
		resp.Resources = append(resp.Resources, rr)
	}
	return reply(resp)
}

// incrementalAlterConfigs changes single keys of each resource.
// Source: ConfigurationControlManager.incrementalAlterConfigs.
func (t *turn) incrementalAlterConfigs(req *kmsg.IncrementalAlterConfigsRequest) answer {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	resp.Resources = []kmsg.IncrementalAlterConfigsResponseResource{}
	dry := t.dryIf(req.ValidateOnly)
	times := map[resourceKey]int{}
	for i := range req.Resources {
		times[resourceKey{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		key := resourceKey{r.ResourceType, r.ResourceName}
		err := onlyOnce(times[key])
		if err == nil {
			err = dry.changeConfig(key, r.Configs)
		}
		rr := kmsg.NewIncrementalAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		rr.ErrorCode, rr.ErrorMessage = codeOf(err)
		resp.Resources = append(resp.Resources, rr)
	}
	return reply(resp)
}

func onlyOnce(times int) error {
	if times > 1 {
		return refuse(kerr.InvalidRequest, "Each resource must appear at most once.")
	}
	return nil
}

// dryIf returns a turn whose records are thrown away if only, and t otherwise.
func (t *turn) dryIf(only bool) *turn {
	if only {
		return newTurn(t.world, t.image(), t.now)
	}
	return t
}

func (t *turn) replaceConfig(key resourceKey, configs []kmsg.AlterConfigsRequestResourceConfig) error {
	next := map[string]string{}
	for _, c := range configs {
		if c.Value == nil {
			return refuse(kerr.InvalidConfig, "Null value not supported for %s", c.Name)
		}
		if _, twice := next[c.Name]; twice {
			return refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		next[c.Name] = *c.Value
	}
	return t.setConfig(key, next, nil)
}

func (t *turn) changeConfig(key resourceKey, configs []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	next := maps.Clone(t.image().Config(resource(key)))
	if next == nil {
		next = map[string]string{}
	}
	named := make([]string, 0, len(configs))
	for _, c := range configs {
		if slices.Contains(named, c.Name) {
			return refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		named = append(named, c.Name)
		if err := t.applyOp(key, next, &c); err != nil {
			return err
		}
	}
	return t.setConfig(key, next, named)
}

// applyOp applies one operation to the settings of a resource.
func (t *turn) applyOp(key resourceKey, next map[string]string, c *kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	if c.Op == kmsg.IncrementalAlterConfigOpDelete {
		delete(next, c.Name)
		return nil
	}
	if c.Value == nil {
		return refuse(kerr.InvalidRequest, "Null value not supported for %s", c.Name)
	}
	if c.Op == kmsg.IncrementalAlterConfigOpSet {
		next[c.Name] = *c.Value
		return nil
	}
	adds := c.Op == kmsg.IncrementalAlterConfigOpAppend
	if !adds && c.Op != kmsg.IncrementalAlterConfigOpSubtract {
		return refuse(kerr.InvalidRequest, "Unknown operation %d on %s", c.Op, c.Name)
	}
	if !config.IsList(key.kind, c.Name) {
		word := map[bool]string{true: "APPEND", false: "SUBTRACT"}[adds]
		return refuse(kerr.InvalidConfig, "Can't %s to key %s because its type is not LIST.", word, c.Name)
	}
	list := splitList(t.listValue(key, next, c.Name))
	for _, item := range splitList(*c.Value) {
		list = slices.DeleteFunc(list, func(have string) bool { return have == item && !adds })
		if adds && !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	next[c.Name] = strings.Join(list, ",")
	return nil
}

// listValue returns what an operation on a list begins with: what is set on the resource, and otherwise the default.
func (t *turn) listValue(key resourceKey, next map[string]string, name string) string {
	if v, ok := next[name]; ok {
		return v
	}
	switch key.kind {
	case kmsg.ConfigResourceTypeTopic:
		v, _ := t.config.WithDynamic(nil, t.image().Config(metadata.ClusterDefaults)).Topic(nil).Get(name)
		return v
	case kmsg.ConfigResourceTypeBroker:
		if k, ok := config.Lookup(name); ok && k.Name == name {
			return t.config.String(name)
		}
	}
	return ""
}

func splitList(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func resource(key resourceKey) metadata.Resource {
	return metadata.Resource{Type: metadata.ResourceType(key.kind), Name: key.name}
}

// setConfig emits what makes the settings of a resource those of next. Keys in named were asked for: on brokers
// they are written even if they do not change, since that makes a broker read again what they point to (KAFKA-14136).
func (t *turn) setConfig(key resourceKey, next map[string]string, named []string) error {
	r := resource(key)
	if err := t.checkResource(key); err != nil {
		return err
	}
	if err := t.validateConfig(key, next); err != nil {
		return err
	}
	old := t.image().Config(r)
	if err := t.checkMinISR(key, old, next); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		again := key.kind == kmsg.ConfigResourceTypeBroker && slices.Contains(named, name)
		if was, ok := old[name]; !ok || was != next[name] || again {
			value := next[name]
			t.emit(&records.ConfigRecord{ResourceType: int8(r.Type), ResourceName: r.Name, Name: name, Value: &value})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, kept := next[name]; !kept {
			t.emit(&records.ConfigRecord{ResourceType: int8(r.Type), ResourceName: r.Name, Name: name})
		}
	}
	if old[minISRKey] != next[minISRKey] {
		t.minISRChanged(key)
	}
	return nil
}

// checkResource makes sure that what is configured exists.
func (t *turn) checkResource(key resourceKey) error {
	switch key.kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := checkTopicName(key.name); err != nil {
			return err
		}
		_, err := t.topicFor(key.name)
		return err
	case kmsg.ConfigResourceTypeBroker:
		id, all, err := config.BrokerResource(key.name)
		if err != nil || all {
			return err
		}
		if t.image().Broker(id) == nil {
			return refuse(kerr.BrokerIDNotRegistered, "No broker with id %d found.", id)
		}
		return nil
	case kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics:
		if key.name == "" {
			return refuse(kerr.InvalidRequest, "Default resources of this type are not allowed.")
		}
		return nil
	}
	return refuse(kerr.InvalidRequest, "Configurations of resource type %d are not kept by the controller.", key.kind)
}

func (t *turn) validateConfig(key resourceKey, next map[string]string) error {
	c := t.config.WithDynamic(t.image().Config(metadata.BrokerResource(t.nodeID)), t.image().Config(metadata.ClusterDefaults))
	switch key.kind {
	case kmsg.ConfigResourceTypeTopic:
		return c.ValidateTopic(next)
	case kmsg.ConfigResourceTypeBroker:
		return c.ValidateBroker(next, key.name != "")
	case kmsg.ConfigResourceTypeGroupConfig:
		return c.ValidateGroup(next)
	}
	return config.ValidateClientMetrics(next)
}

// checkMinISR keeps min.insync.replicas the same on all brokers while there is an ELR, which depends on it (KIP-966).
func (t *turn) checkMinISR(key resourceKey, old, next map[string]string) error {
	if key.kind != kmsg.ConfigResourceTypeBroker || !t.elr() {
		return nil
	}
	_, had := old[minISRKey]
	_, has := next[minISRKey]
	switch {
	case key.name != "" && has:
		return refuse(kerr.InvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
	case key.name == "" && had && !has:
		return refuse(kerr.InvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
	}
	return nil
}

// minISRChanged ends the ELR of partitions whose ISR is large enough now.
func (t *turn) minISRChanged(key resourceKey) {
	if !t.elr() {
		return
	}
	var changes []*records.PartitionChangeRecord
	for topic := range t.image().Topics() {
		if key.kind == kmsg.ConfigResourceTypeTopic && topic.Name != key.name {
			continue
		}
		for id, p := range topic.Partitions() {
			if len(p.ELR) == 0 {
				continue
			}
			if r := t.change(topic, id).record(); r != nil {
				changes = append(changes, r)
			}
		}
	}
	for _, r := range changes {
		t.emit(r)
	}
}
