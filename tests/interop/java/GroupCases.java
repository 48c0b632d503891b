import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Groups of Java consumers: each case prints one line, "ok NAME" or "failed NAME: reason". */
public final class GroupCases {
    private static final int PARTITIONS = 4;
    private static final Map<String, String> CONSUMER = Map.of("group.protocol", "consumer");
    private static final Map<String, String> COOPERATIVE = Map.of(
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    /** Range and cooperative-sticky, of which the client uses the first alone, eagerly. */
    private static final Map<String, String> DEFAULT = Map.of();
    private static String bootstrap;

    interface Case {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("classic_range", () -> share(Map.of(
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor")));
        cases.put("classic_cooperative", () -> share(COOPERATIVE));
        cases.put("classic_static", () -> staticMember(DEFAULT));
        cases.put("consumer_uniform", () -> share(CONSUMER));
        cases.put("consumer_range", () -> share(Map.of("group.protocol", "consumer", "group.remote.assignor", "range")));
        cases.put("consumer_static", () -> staticMember(CONSUMER));
        cases.put("consumer_pattern", GroupCases::pattern);
        cases.put("consumer_pattern_that_is_none", GroupCases::noPattern);
        cases.put("an_empty_group_changes_its_protocol", GroupCases::changesProtocol);
        cases.put("members_of_both_protocols", () -> bothProtocols(DEFAULT));
        cases.put("members_of_both_protocols_cooperative", () -> bothProtocols(COOPERATIVE));
        cases.put("members_of_both_protocols_and_all_assignors", GroupCases::allKinds);
        for (Map.Entry<String, Case> entry : cases.entrySet()) {
            try {
                entry.getValue().run();
                System.out.println("ok " + entry.getKey());
            } catch (Throwable failure) {
                System.out.println("failed " + entry.getKey() + ": " + String.valueOf(failure).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    /** One has all, two share, the second leaves, all is read and committed, a third resumes. */
    private static void share(Map<String, String> settings) throws Exception {
        String topic = filledTopic(0, 40);
        String group = "java-" + UUID.randomUUID();
        Set<String> values = new HashSet<>();
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        members.add(member(group, topic, settings));
        until("one has all", () -> poll(members, values) && isShared(members));
        members.add(member(group, topic, settings));
        until("two share", () -> poll(members, values) && isShared(members));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            check(described.members().size() == 2, "two members are described");
            check(admin.listGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group)), "it is listed");
        }
        members.remove(1).close();
        until("the first has all again", () -> poll(members, values) && isShared(members));
        // What was read before the round and not committed is read again: its own positions tell when it is through.
        until("all is read", () -> poll(members, values) && members.get(0).assignment().stream()
                .mapToLong(members.get(0)::position).sum() == 40);
        check(values.size() == 40, "nothing is missing");
        members.get(0).commitSync();
        members.remove(0).close();

        Set<String> later = new HashSet<>();
        members.add(member(group, topic, settings));
        fill(topic, 40, 44);
        until("the rest is read", () -> poll(members, later) && later.size() >= 4);
        check(later.equals(Set.of("v40", "v41", "v42", "v43")), "only the rest is read: " + later);
        members.get(0).close();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            until("it is empty", () -> admin.describeConsumerGroups(List.of(group)).all().get().get(group)
                    .groupState() == GroupState.EMPTY);
            admin.deleteConsumerGroups(List.of(group)).all().get();
        }
    }

    private static void staticMember(Map<String, String> settings) throws Exception {
        String topic = filledTopic(0, 4);
        String group = "java-" + UUID.randomUUID();
        Set<String> values = new HashSet<>();
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        for (String name : List.of("one", "two")) {
            Map<String, String> named = new HashMap<>(settings);
            named.put("group.instance.id", name);
            members.add(member(group, topic, named));
        }
        until("two share", () -> poll(members, values) && isShared(members));
        Collection<TopicPartition> had = new HashSet<>(members.get(1).assignment());
        members.remove(1).close();
        Map<String, String> named = new HashMap<>(settings);
        named.put("group.instance.id", "two");
        members.add(member(group, topic, named));
        until("it is back", () -> poll(members, values) && isShared(members));
        check(members.get(1).assignment().equals(had), "it has what it had");
        for (KafkaConsumer<String, String> each : members) {
            each.close();
        }
    }

    /** The broker matches the expression: topics that are there, and one that comes later. */
    private static void pattern() throws Exception {
        String prefix = "java-pattern-" + UUID.randomUUID();
        createTopic(prefix + "-one");
        createTopic(prefix + "-two");
        createTopic("not-" + prefix + "-one");
        fill(prefix + "-one", 0, 4);
        fill("not-" + prefix + "-one", 4, 8);
        Set<String> values = new HashSet<>();
        try (KafkaConsumer<String, String> consumer =
                consumer("java-" + UUID.randomUUID(), CONSUMER)) {
            consumer.subscribe(new SubscriptionPattern("^" + prefix + "-.*"));
            List<KafkaConsumer<String, String>> members = List.of(consumer);
            until("it reads what is there", () -> poll(members, values) && topicsOf(consumer).equals(
                    Set.of(prefix + "-one", prefix + "-two")) && values.size() == 4);
            createTopic(prefix + "-three");
            fill(prefix + "-three", 8, 12);
            until("it reads what comes later", () -> poll(members, values) && values.size() == 8);
            check(topicsOf(consumer).size() == 3, "three topics: " + topicsOf(consumer));
            consumer.commitSync();
            consumer.subscribe(new SubscriptionPattern(".*" + prefix + "-two"));
            until("it changes its mind", () -> poll(members, values) && topicsOf(consumer).equals(
                    Set.of(prefix + "-two")));
            consumer.unsubscribe();
            consumer.subscribe(List.of("not-" + prefix + "-one"));
            until("it names a topic", () -> poll(members, values) && topicsOf(consumer).equals(
                    Set.of("not-" + prefix + "-one")) && values.size() == 12);
        }
    }

    private static void noPattern() throws Exception {
        try (KafkaConsumer<String, String> consumer =
                consumer("java-" + UUID.randomUUID(), CONSUMER)) {
            consumer.subscribe(new SubscriptionPattern("(?=look-ahead)"));
            Throwable[] refusal = new Throwable[1];
            until("it is refused", () -> {
                try {
                    consumer.poll(Duration.ofMillis(50));
                } catch (InvalidRegularExpression problem) {
                    refusal[0] = problem;
                }
                return refusal[0] != null;
            });
        }
    }

    /** A group without members goes from one protocol to the other, and back, with its positions. */
    private static void changesProtocol() throws Exception {
        String topic = filledTopic(0, 4);
        String group = "java-" + UUID.randomUUID();
        int end = 4;
        for (String protocol : List.of("classic", "consumer", "classic", "consumer")) {
            Set<String> values = new HashSet<>();
            KafkaConsumer<String, String> consumer = member(group, topic, Map.of("group.protocol", protocol));
            List<KafkaConsumer<String, String>> members = List.of(consumer);
            until("it reads with " + protocol, () -> poll(members, values) && values.size() >= 4);
            check(values.size() == 4, "only what is new: " + values);
            consumer.commitSync();
            consumer.close();
            fill(topic, end, end + 4);
            end += 4;
        }
    }

    /** All members are replaced, one after the other, by ones of the consumer protocol, and these again by classic ones. */
    private static void bothProtocols(Map<String, String> classic) throws Exception {
        BusyGroup group = new BusyGroup();
        group.comes(classic);
        group.comes(classic);
        group.settles(GroupType.CLASSIC);
        for (int count = 0; count < 2; count++) {
            group.comes(CONSUMER);
            group.settles(GroupType.CONSUMER);
            group.firstGoes();
            group.settles(GroupType.CONSUMER);
        }
        // Back the other way: here one goes before the next comes.
        group.firstGoes();
        group.comes(classic);
        group.settles(GroupType.CONSUMER);
        group.firstGoes();
        group.settles(GroupType.CLASSIC);
        group.comes(classic);
        group.settles(GroupType.CLASSIC);
        group.readsEverything();
    }

    /** What classic members have in common is kept while they share with others. */
    private static void allKinds() throws Exception {
        BusyGroup group = new BusyGroup();
        group.comes(CONSUMER);
        group.comes(DEFAULT);
        group.comes(COOPERATIVE);
        group.settles(GroupType.CONSUMER);
        group.firstGoes();
        group.settles(GroupType.CLASSIC);
        group.comes(CONSUMER);
        group.settles(GroupType.CONSUMER);
        group.firstGoes();
        group.settles(GroupType.CONSUMER);
        group.comes(DEFAULT);
        group.settles(GroupType.CONSUMER);
        group.readsEverything();
    }

    /** Its members read and commit while records come. */
    private static final class BusyGroup {
        private final String name = "java-" + UUID.randomUUID();
        private final String topic = filledTopic(0, 4);
        private final List<KafkaConsumer<String, String>> members = new ArrayList<>();
        private final Set<String> values = new HashSet<>();
        private int end = 4;

        BusyGroup() throws Exception {}

        void comes(Map<String, String> settings) {
            Map<String, String> committing = new HashMap<>(settings);
            committing.put("enable.auto.commit", "true");
            committing.put("auto.commit.interval.ms", "100");
            members.add(member(name, topic, committing));
        }

        void firstGoes() {
            members.remove(0).close();
        }

        void settles(GroupType type) throws Exception {
            fill(topic, end, end + 4);
            end += 4;
            until(members.size() + " share", () -> poll(members, values) && isShared(members));
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                until("it is seen as " + type, () -> poll(members, values) && isShared(members) && isSeen(admin, type));
            }
        }

        private boolean isSeen(Admin admin, GroupType type) throws Exception {
            ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
            return described.type() == type && described.groupState() == GroupState.STABLE
                    && described.members().size() == members.size();
        }

        void readsEverything() throws Exception {
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                until("everything is committed", () -> poll(members, values) && committed(admin) == end);
            }
            check(values.size() == end, "everything is read");
            for (KafkaConsumer<String, String> each : members) {
                each.close();
            }
        }

        private long committed(Admin admin) throws Exception {
            return admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().values().stream()
                    .mapToLong(OffsetAndMetadata::offset).sum();
        }
    }

    private static Set<String> topicsOf(KafkaConsumer<String, String> consumer) {
        return consumer.assignment().stream().map(TopicPartition::topic).collect(Collectors.toSet());
    }

    private static KafkaConsumer<String, String> member(String group, String topic, Map<String, String> settings) {
        KafkaConsumer<String, String> consumer = consumer(group, settings);
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private static KafkaConsumer<String, String> consumer(String group, Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        all.put("group.id", group);
        all.put("auto.offset.reset", "earliest");
        all.putIfAbsent("enable.auto.commit", "false");
        if (!"consumer".equals(settings.get("group.protocol"))) {
            all.put("heartbeat.interval.ms", "300");
            all.put("session.timeout.ms", "6000");
        }
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    private static boolean poll(List<KafkaConsumer<String, String>> members, Set<String> values) {
        for (KafkaConsumer<String, String> member : members) {
            for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(50))) {
                values.add(record.value());
            }
        }
        return true;
    }

    private static boolean isShared(List<KafkaConsumer<String, String>> members) {
        Set<TopicPartition> all = new HashSet<>();
        int count = 0;
        for (KafkaConsumer<String, String> member : members) {
            all.addAll(member.assignment());
            count += member.assignment().size();
            if (member.assignment().isEmpty()) {
                return false;
            }
        }
        return count == PARTITIONS && all.size() == PARTITIONS;
    }

    private static String filledTopic(int start, int end) throws Exception {
        String topic = "java-groups-" + UUID.randomUUID();
        createTopic(topic);
        fill(topic, start, end);
        return topic;
    }

    private static void createTopic(String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        }
    }

    private static void fill(String topic, int start, int end) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = start; number < end; number++) {
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, "v" + number));
            }
            producer.flush();
        }
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    private static void until(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, what + " did not come true");
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
