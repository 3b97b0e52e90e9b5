/* A federate of IEEE 1516-2010 that joins the federation of hla.xml, shared by hla_tank.cpp and hla_gateway.cpp. */
#ifndef HLA_H
#define HLA_H

#include <RTI/NullFederateAmbassador.h>
#include <RTI/RTI1516.h>

#include <cstdio>
#include <memory>
#include <string>

using namespace rti1516e;

/* For ASCII text only. */
inline std::wstring to_wide(const std::string &text)
{
    return std::wstring(text.begin(), text.end());
}

inline std::string text_of(const VariableLengthData &data)
{
    return std::string(static_cast<const char *>(data.data()), data.size());
}

class Federate : public NullFederateAmbassador
{
public:
    /* Joins at the RTI at `url` ("rti://127.0.0.1:14321"), and publishes and subscribes to everything. */
    void join(const std::string &url, const std::string &name, const std::string &fom)
    {
        rti = RTIambassadorFactory().createRTIambassador();
        rti->connect(*this, HLA_EVOKED, to_wide(url));
        try {
            rti->createFederationExecution(L"tanks", to_wide(fom));
        } catch (const FederationExecutionAlreadyExists &) {
        }
        rti->joinFederationExecution(to_wide(name), L"federate", L"tanks");
        tank = rti->getObjectClassHandle(L"Tank");
        state = rti->getAttributeHandle(tank, L"State");
        fire = rti->getInteractionClassHandle(L"Fire");
        shot = rti->getParameterHandle(fire, L"Shot");
        AttributeHandleSet attributes;
        attributes.insert(state);
        rti->publishObjectClassAttributes(tank, attributes);
        rti->subscribeObjectClassAttributes(tank, attributes);
        rti->publishInteractionClass(fire);
        rti->subscribeInteractionClass(fire);
    }

    void leave()
    {
        rti->resignFederationExecution(CANCEL_THEN_DELETE_THEN_DIVEST);
        rti->disconnect();
    }

    void update(ObjectInstanceHandle object, const std::string &value)
    {
        AttributeHandleValueMap values;
        values[state] = VariableLengthData(value.data(), value.size());
        rti->updateAttributeValues(object, values, VariableLengthData());
    }

    void shoot(const std::string &value)
    {
        ParameterHandleValueMap values;
        values[shot] = VariableLengthData(value.data(), value.size());
        rti->sendInteraction(fire, values, VariableLengthData());
    }

    /* Called when another tank updates its state. */
    virtual void updated(ObjectInstanceHandle object, const std::string &value) = 0;
    /* Called when another federate fires. */
    virtual void shot_received(const std::string &value) = 0;

    void reflectAttributeValues(ObjectInstanceHandle object, const AttributeHandleValueMap &values,
                                const VariableLengthData &, OrderType, TransportationType,
                                SupplementalReflectInfo) RTI_THROW((FederateInternalError)) override
    {
        const auto found = values.find(state);
        if (found != values.end())
            updated(object, text_of(found->second));
    }

    void receiveInteraction(InteractionClassHandle, const ParameterHandleValueMap &values, const VariableLengthData &,
                            OrderType, TransportationType,
                            SupplementalReceiveInfo) RTI_THROW((FederateInternalError)) override
    {
        const auto found = values.find(shot);
        if (found != values.end())
            shot_received(text_of(found->second));
    }

    std::unique_ptr<RTIambassador> rti;
    ObjectClassHandle tank;
    AttributeHandle state;
    InteractionClassHandle fire;
    ParameterHandle shot;
};

#endif
