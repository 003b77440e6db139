# Made for tests: see README.md
graph [
  Network "Cities"
  DateMonth 0
  label "Cities"
  node [
    id 0
    label "Berlin"
    Longitude 13.405
    Internal 1
    Latitude 52.52
  ]
  node [
    id 1
    label "Paris"
    Longitude 2.3522
    Internal 1
    Latitude 48.8566
  ]
  node [
    id 2
    label "Rome"
    Longitude 12.4964
    Internal 1
    Latitude 41.9028
  ]
  node [
    id 3
    label "Madrid"
    Longitude -3.7038
    Internal 1
    Latitude 40.4168
  ]
  node [
    id 4
    label "Warsaw"
    Longitude 21.0122
    Internal 1
    Latitude 52.2297
  ]
  node [
    id 5
    label "Vienna"
    Longitude 16.3738
    Internal 1
    Latitude 48.2082
  ]
  node [
    id 6
    label "Exchange"
    Internal 1
  ]
  node [
    id 7
    label "Exchange"
    Internal 1
  ]
  node [
    id 8
    label "Lisbon"
    Longitude -9.1393
    Internal 1
    Latitude 38.7223
  ]
  node [
    id 9
    label "Athens"
    Longitude 23.7275
    Internal 1
    Latitude 37.9838
  ]
  edge [
    source 0
    target 1
    LinkLabel "10 Gbps"
  ]
  edge [
    source 0
    target 1
    LinkLabel "10 Gbps"
  ]
  edge [
    source 0
    target 4
    LinkLabel "10 Gbps"
  ]
  edge [
    source 0
    target 6
    LinkLabel "10 Gbps"
  ]
  edge [
    source 6
    target 5
    LinkLabel "10 Gbps"
  ]
  edge [
    source 5
    target 2
    LinkLabel "10 Gbps"
  ]
  edge [
    source 2
    target 9
    LinkLabel "10 Gbps"
  ]
  edge [
    source 1
    target 3
    LinkLabel "10 Gbps"
  ]
  edge [
    source 3
    target 8
    LinkLabel "10 Gbps"
  ]
  edge [
    source 1
    target 7
    LinkLabel "10 Gbps"
  ]
  edge [
    source 7
    target 2
    LinkLabel "10 Gbps"
  ]
  edge [
    source 4
    target 5
    LinkLabel "10 Gbps"
  ]
  edge [
    source 3
    target 3
    LinkLabel "10 Gbps"
  ]
  edge [
    source 5
    target 2
    LinkLabel "10 Gbps"
  ]
]
